#include "tensor/cuda/kernel.h"

#include "tensor/cuda/reduce.h"
#include "tensor/math-inl.h"
#include "tensor/ops/softmax.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

using V = Vec<float>;

// One warp per row.
__global__ void softmax_rows(SoftmaxArgs a) {
  const int64_t row = thread_of_grid() / 32, n = a.cols;
  if (row >= a.rows) return;
  const float* x = a.x.as<float>() + row * n;
  float* y = a.y.as<float>() + row * n;
  const int t = static_cast<int>(threadIdx.x % 32);
  const V m{warp_row_max<float>(x, n)};
  const float l = warp_row_sum<float>(n, [&](int64_t i) { return exp(V{x[i]} - m).v; });
  if (a.log) {
    const V log_l = log(V{l});
    for (int64_t i = t; i < n; i += 32) y[i] = ((V{x[i]} - m) - log_l).v;
  } else {
    const V r{1.0f / l};
    for (int64_t i = t; i < n; i += 32) y[i] = (exp(V{x[i]} - m) * r).v;
  }
}

__global__ void softmax_backward_rows(SoftmaxBackwardArgs a) {
  const int64_t row = thread_of_grid() / 32, n = a.cols;
  if (row >= a.rows) return;
  const float *dy = a.dy.as<float>() + row * n, *y = a.y.as<float>() + row * n;
  float* dx = a.dx.as<float>() + row * n;
  const auto dy_at = [&](int64_t i) { return dy[i]; };
  const auto y_at = [&](int64_t i) { return y[i]; };
  const V s{a.log ? warp_row_sum<float>(n, dy_at) : warp_row_dot<float>(n, dy_at, y_at)};
  for (int64_t i = static_cast<int64_t>(threadIdx.x % 32); i < n; i += 32) {
    const V g{dy[i]}, p{y[i]};
    dx[i] = (a.log ? g - exp(p) * s : p * (g - s)).v;
  }
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void softmax(Gpu& stream, const SoftmaxArgs& a) {
  launch(stream, "softmax", {.blocks = warp_blocks(a.rows)}, HWY_NAMESPACE::softmax_rows, a);
}

template <>
void softmax_backward(Gpu& stream, const SoftmaxBackwardArgs& a) {
  launch(stream, "softmax_backward", {.blocks = warp_blocks(a.rows)}, HWY_NAMESPACE::softmax_backward_rows, a);
}

}  // namespace elinvar
