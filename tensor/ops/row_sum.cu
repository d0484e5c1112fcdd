#include "tensor/cuda/kernel.h"

#include "tensor/cuda/reduce.h"
#include "tensor/ops/row_sum.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

// Returns the sum of n elements from `first` on; one warp calls it.
__device__ float sum_of(const RowSumArgs& a, int64_t first, int64_t n) {
  const float* x = a.x.as<float>() + first;
  const auto x_at = [&](int64_t i) { return x[i]; };
  if (!a.factor.data) return warp_row_sum<float>(n, x_at);
  const float* factor = a.factor.as<float>() + first;
  return warp_row_dot<float>(n, x_at, [&](int64_t i) { return factor[i]; });
}

// One warp per row.
__global__ void row_sums(RowSumArgs a) {
  const int64_t row = thread_of_grid() / 32;
  if (row >= a.rows) return;
  const float sum = sum_of(a, row * a.cols, a.cols);
  if (threadIdx.x % 32 == 0) a.sum.as<float>()[row] = sum / static_cast<float>(a.divisor);
}

// One warp per segment, counted over all rows.
__global__ void segment_sums(RowSumArgs a, int64_t segments) {
  const int64_t i = thread_of_grid() / 32;
  if (i >= a.rows * segments) return;
  const int64_t first = i % segments * kRowSegment, left = a.cols - first;
  const float sum = sum_of(a, i / segments * a.cols + first, left < kRowSegment ? left : kRowSegment);
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
