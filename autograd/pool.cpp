#include "autograd/conv.h"
#include "tensor/base/check.h"
#include "tensor/ops/pool.h"

namespace elinvar {
namespace {

struct Axes {
  PoolAxis h, w;
};

void check_images(const char* op, const Var& x) {
  check(x.ndim() == 4, "[{}] images (N, H, W, C) expected, shape is {}", op, to_string(x.shape()));
}

Axes axes_of(const char* op, const Var& x, const Pool2dOptions& o) {
  check_images(op, x);
  return {pool_axis(op, x.dim(1), o.kernel.h, o.stride.h, o.padding.h),
          pool_axis(op, x.dim(2), o.kernel.w, o.stride.w, o.padding.w)};
}

Var average(const Var& x, const Axes& axes, bool present_only) {
  return record(avg_pool(x.value(), axes.h, axes.w, present_only), {x}, [axes, present_only](const Tensor& dy) {
    return std::vector<Tensor>{avg_pool_backward(dy, axes.h, axes.w, present_only)};
  });
}

}  // namespace

Var max_pool2d(const Var& x, const Pool2dOptions& options) {
  const Axes axes = axes_of("max_pool2d", x, options);
  Tensor winner;
  Tensor y = max_pool(x.value(), axes.h, axes.w, x.requires_grad() ? &winner : nullptr);
  return record(std::move(y), {x}, [winner, axes](const Tensor& dy) {
    return std::vector<Tensor>{max_pool_backward(dy, winner, axes.h, axes.w)};
  });
}

Var avg_pool2d(const Var& x, const Pool2dOptions& options) {
  return average(x, axes_of("avg_pool2d", x, options), !options.count_include_pad);
}

Var adaptive_avg_pool2d(const Var& x, Extent2 out) {
  const char* op = "adaptive_avg_pool2d";
  check_images(op, x);
  return average(x, {adaptive_pool_axis(op, x.dim(1), out.h), adaptive_pool_axis(op, x.dim(2), out.w)}, false);
}

}  // namespace elinvar
