#include "nn/segment_measurement.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "tensor/allocator.h"
#include "tensor/transfer.h"

namespace elinvar {

std::vector<MeasuredSegment> measure_segments(const SegmentedNetwork& network, const Tensor& input,
                                              const Targets& targets, const LossOptions& loss, const Rng& rng,
                                              const SegmentPasses::Options& options) {
  using Clock = std::chrono::steady_clock;
  std::vector<MeasuredSegment> measured;
  Boundary from{input, rng};
  const size_t segments = network.segments().size();
  for (size_t i = 0; i < segments; ++i) {
    const auto in_use = [] { return HostAllocator::instance().stats().in_use; };
    const int64_t before = in_use();
    HostAllocator::instance().reset_peak();
    const Clock::time_point began = Clock::now();
    SegmentPasses passes(network, {i, i + 1}, from, targets, loss, options);
    const bool head = i + 1 == segments;
    Boundary to = head ? Boundary{} : passes.to();
    const int64_t held = in_use() - before;
    std::vector<Tensor> gradients;
    const Tensor dx = passes.backward({}, gradients);
    Download(Tensor::zeros({1}, DType::f32, input.device())).wait();  // follows all that was called before
    int64_t of_gradients = 0;
    for (const Tensor& gradient : gradients)
      if (gradient.defined()) of_gradients += gradient.bytes();
    const int64_t peak = HostAllocator::instance().stats().peak_in_use - before;
    measured.push_back({.seconds = std::chrono::duration<double>(Clock::now() - began).count(),
                        .held = held,
                        .peak = std::max(held, peak - of_gradients),
                        .value = head ? Shape{} : to.value.shape(),
                        .statistics = passes.take_statistics()});
    from = std::move(to);
  }
  return measured;
}

std::vector<int> homes_of(const SegmentedNetwork& network) {
  const std::vector<Segment>& segments = network.segments();
  std::vector<int> homes(segments.size());
  for (size_t i = segments.size(); i-- > 0;) {
    homes[i] = static_cast<int>(i);
    for (size_t j = i + 1; j < segments.size(); ++j) {
      std::vector<size_t> shared;
      std::ranges::set_intersection(segments[i].parameters, segments[j].parameters, std::back_inserter(shared));
      if (!shared.empty()) homes[i] = homes[j];
    }
  }
  return homes;
}

}  // namespace elinvar
