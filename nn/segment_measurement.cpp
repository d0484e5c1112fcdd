#include "nn/segment_measurement.h"

#include <time.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "tensor/device_memory.h"
#include "tensor/ops/copy.h"
#include "tensor/stream.h"
#include "tensor/transfer.h"

namespace elinvar {

namespace {

constexpr double kLong = 3;  // seconds, in which touching memory does not count

// Counts what a group adds up and joins.
class CountingShards final : public ShardGroup {
 public:
  explicit CountingShards(ShardGroup& group) : group_(group) {}
  ShardRange own(int count) const override { return group_.own(count); }
  Tensor sum(std::vector<Tensor> values, int count) override {
    ++sums.count;
    sums.bytes += values.at(0).bytes();
    return group_.sum(std::move(values), count);
  }
  std::vector<Tensor> gather(std::vector<Tensor> values, const std::vector<Shape>& shapes) override {
    ++sums.count;
    for (const Shape& shape : shapes) sums.bytes += shape.numel() * size_of(values.at(0).dtype()) / 2;
    return group_.gather(std::move(values), shapes);
  }

  ShardSums sums;

 private:
  ShardGroup& group_;
};

// Gives memory to those parameters of a segment that have none.
class Present {
 public:
  Present(const SegmentedNetwork& network, size_t segment, const ShardGroup& group) {
    for (const size_t p : network.segments()[segment].parameters) {
      const Parameter& parameter = network.parameters.list[p];
      const bool looked_up = parameter.sparse();  // and never read as a whole
      if (!parameter.computed_here(group) || looked_up || parameter.var.value().resident()) continue;
      Tensor& values = absent_.emplace_back(parameter.var).mutable_value();
      values.restore();
      Tensor on_host = Tensor::empty(values.shape());
      float* const element = on_host.data<float>();
      for (int64_t i = 0; i < on_host.numel(); ++i) element[i] = 0.01F * static_cast<float>(i % 7 - 3);
      copy(on_host, values);
    }
  }
  ~Present() {
    for (Var& parameter : absent_) parameter.mutable_value().release();
  }
  Present(const Present&) = delete;
  Present& operator=(const Present&) = delete;

 private:
  std::vector<Var> absent_;
};

// Returns a text that is equal for segments that do the same to inputs of the same shape; "" if that is not known.
std::string work_of(const SegmentedNetwork& network, size_t i, const Tensor& input) {
  const Segment& segment = network.segments()[i];
  if (segment.kind.empty()) return "";
  std::string text = segment.kind + " " + to_string(input.shape());
  for (const size_t p : segment.parameters) text += " " + to_string(network.parameters.list[p].var.shape());
  return text;
}

// A thread that works alone has a clock of its own, which other programs disturb less.
double seconds_now(Device device) {
  timespec t;
  const bool alone = device.kind == DeviceKind::cpu && cpu_stream().threads() == 1;
  clock_gettime(alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void await(const Device& device) { Download(Tensor::zeros({1}, DType::f32, device)).wait(); }

// The device that computes; indices in the input stay on the CPU.
Device device_of(const SegmentedNetwork& network) {
  const std::vector<Parameter>& all = network.parameters.list;
  return all.empty() ? Device{} : all[0].var.value().device();
}

// Runs both passes of segment i, and replaces `at` by what it gives.
MeasuredSegment run_segment(const SegmentedNetwork& network, size_t i, Boundary& at, const Targets& targets,
                            const Task& task, SegmentPasses::Options options) {
  CountingShards counting(*options.group);
  options.group = &counting;
  const Device device = device_of(network);
  const int64_t before = memory_of(device).in_use;
  reset_peak_of(device);
  const double began = seconds_now(device);
  SegmentPasses passes(network, {i, i + 1}, at, targets, task, options);
  const bool head = i + 1 == network.segments().size();
  Boundary to = head ? Boundary{} : passes.to();
  await(device);
  const double forward = seconds_now(device) - began;
  const ShardSums forward_sums = std::exchange(counting.sums, {});
  const int64_t held = memory_of(device).in_use - before;
  std::vector<Tensor> gradients;
  const Tensor dx = passes.backward({}, gradients);
  await(device);  // follows all that was called before
  int64_t of_gradients = 0;
  for (const Tensor& gradient : gradients)
    if (gradient.defined()) of_gradients += gradient.bytes();
  const int64_t peak = memory_of(device).peak_in_use - before;
  MeasuredSegment measured{.seconds = seconds_now(device) - began,
                           .forward = forward,
                           .held = held,
                           .peak = std::max(held, peak - of_gradients),
                           .forward_sums = forward_sums,
                           .backward_sums = counting.sums,
                           .value = head ? Shape{} : to.value.shape(),
                           .dtype = head ? DType::f32 : to.value.dtype(),
                           .statistics = passes.take_statistics()};
  at = std::move(to);
  return measured;
}

// Runs segment i as often as `trials` says, and replaces `at` by what it gives.
MeasuredSegment measure_segment(const SegmentedNetwork& network, size_t i, Boundary& at, const Targets& targets,
                                const Task& task, const SegmentPasses::Options& options, const SegmentTrials& trials) {
  const Boundary from = at;
  const auto run = [&] {
    at = from;
    (void)trials.greatest(0);
    return run_segment(network, i, at, targets, task, options);
  };
  MeasuredSegment first = run();
  const double seconds = trials.greatest(first.seconds);
  if (seconds >= kLong) return first;
  std::vector<MeasuredSegment> runs;
  for (int r = 0; r < (seconds > trials.brief ? 1 : trials.runs); ++r) runs.push_back(run());
  std::ranges::sort(runs, {}, &MeasuredSegment::seconds);
  return runs[runs.size() / 2];
}

}  // namespace

std::vector<MeasuredSegment> measure_segments(const SegmentedNetwork& network, const Inputs& input,
                                              const Targets& targets, const Task& task, const Rng& rng,
                                              const SegmentPasses::Options& given, const SegmentTrials& trials) {
  SegmentPasses::Options options = given;
  options.inputs = input.further;
  std::vector<MeasuredSegment> measured;
  std::map<std::string, size_t> by_work;
  Boundary at{input.first, rng};
  for (size_t i = 0; i < network.segments().size(); ++i) {
    const std::string work = work_of(network, i, at.value);
    const auto same = by_work.find(work);
    if (same != by_work.end() && (!trials.statistics || measured[same->second].statistics.empty())) {
      const MeasuredSegment& earlier = measured.emplace_back(MeasuredSegment(measured[same->second]));
      if (at.value.shape() != earlier.value) at.value = Tensor::zeros(earlier.value, earlier.dtype, device_of(network));
      continue;
    }
    std::optional<Present> parameters;
    if (options.residence == nullptr) parameters.emplace(network, i, *options.group);
    measured.push_back(measure_segment(network, i, at, targets, task, options, trials));
    if (!work.empty()) by_work.emplace(work, i);
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
