#include "tensor/cuda/kernel.h"

#include "tensor/cuda/reduce.h"
#include "tensor/ops/row_sum.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

// Returns the sum of n elements from `first` on, by reduce(step); one warp calls it.
template <class Reduce>
__device__ float sum_of(const RowSumArgs& a, int64_t first, Reduce reduce) {
  const float* x = a.x.as<float>() + first;
  if (!a.factor.data) return reduce([&](float acc, int64_t i) { return acc + x[i]; });
  const float* factor = a.factor.as<float>() + first;
  return reduce([&](float acc, int64_t i) { return fma(Vec<float>{x[i]}, Vec<float>{factor[i]}, Vec<float>{acc}).v; });
}

// One warp per row.
__global__ void row_sums(RowSumArgs a) {
  const int64_t row = thread_of_grid() / 32;
  if (row >= a.rows) return;
  const float sum = sum_of(a, row * a.cols, [&](auto step) { return warp_row_reduce<float>(a.cols, step); });
  if (threadIdx.x % 32 == 0) a.sum.as<float>()[row] = sum / static_cast<float>(a.divisor);
}

// One warp per segment, counted over all rows.
__global__ void segment_sums(RowSumArgs a, int64_t segments) {
  const int64_t i = thread_of_grid() / 32;
  if (i >= a.rows * segments) return;
  const int64_t first = i % segments * kRowSegment, left = a.cols - first;
  const float sum = sum_of(a, i / segments * a.cols + first, [&](auto step) {
    return warp_segment_reduce<float>(0, left < kRowSegment ? left : kRowSegment, step);
  });
  if (threadIdx.x % 32 == 0) a.partial.as<float>()[i] = sum;
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void row_sum(Gpu& stream, const RowSumArgs& a) {
  if (a.cols <= kRowSegment) {
    launch(stream, "row_sum", {.blocks = warp_blocks(a.rows)}, HWY_NAMESPACE::row_sums, a);
    return;
  }
  const int64_t segments = segments_of(a.cols);
  launch(stream, "row_sum_segments", {.blocks = warp_blocks(a.rows * segments)}, HWY_NAMESPACE::segment_sums, a,
         segments);
  const RowSumArgs rest{{a.partial.data, a.partial.dtype}, {}, a.sum, {}, a.rows, segments, a.divisor};
  launch(stream, "row_sum", {.blocks = warp_blocks(a.rows)}, HWY_NAMESPACE::row_sums, rest);
}

}  // namespace elinvar
