#include "tensor/cuda/kernel.h"

#include "tensor/cuda/many.h"
#include "tensor/cuda/reduce.h"
#include "tensor/ops/global_norm.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

constexpr int64_t kSegmentsOfBlock = 8;

// One warp per segment.
__global__ void square_sum_segments(Many<SquareSumsArgs> all) {
  const auto [a, block] = all.find();
  const int64_t segment = block * kSegmentsOfBlock + threadIdx.x / 32, first = segment * kRowSegment;
  if (first >= a.n) return;
  const float* x = a.x.as<float>() + first;
  const double sum =
      warp_segment_reduce<double>(0, a.n - first < kRowSegment ? a.n - first : kRowSegment, [&](double acc, int64_t i) {
        const Vec<double> g{static_cast<double>(x[i])};
        return fma(g, g, Vec<double>{acc}).v;
      });
  if (threadIdx.x % 32 == 0) a.partial.as<double>()[segment] = sum;
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void square_sums(Gpu& stream, std::span<const SquareSumsArgs> all) {
  constexpr int64_t kElements = HWY_NAMESPACE::kSegmentsOfBlock * kRowSegment;
  launch_many(
      stream, "square_sums", all, [](const SquareSumsArgs& a) { return (a.n + kElements - 1) / kElements; },
      HWY_NAMESPACE::square_sum_segments);
}

}  // namespace elinvar
