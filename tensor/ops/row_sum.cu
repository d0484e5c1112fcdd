#include "tensor/cuda/kernel.h"

#include "tensor/cuda/reduce.h"
#include "tensor/ops/row_sum.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

// A warp for each row.
__global__ void row_sums(RowSumArgs a) {
  const int64_t row = thread_of_grid() / 32, n = a.cols;
  if (row >= a.rows) return;
  const float* x = a.x.as<float>() + row * n;
  const float* factor = a.factor.data ? a.factor.as<float>() + row * n : nullptr;
  const auto x_at = [&](int64_t i) { return x[i]; };
  const float sum =
      factor ? warp_row_dot<float>(n, x_at, [&](int64_t i) { return factor[i]; }) : warp_row_sum<float>(n, x_at);
  if (threadIdx.x % 32 == 0) a.sum.as<float>()[row] = sum / static_cast<float>(a.divisor);
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void row_sum(Gpu& stream, const RowSumArgs& a) {
  require_f32("row_sum", a.x.dtype);
  launch(stream, "row_sum", {.blocks = warp_blocks(a.rows)}, HWY_NAMESPACE::row_sums, a);
}

}  // namespace elinvar
