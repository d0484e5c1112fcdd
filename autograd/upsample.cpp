#include "tensor/ops/upsample.h"

#include "autograd/conv.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

Var upsampled(const char* op, const Var& x, Extent2 out, bool linear) {
  check(x.ndim() == 4, "[{}] images (N, H, W, C) expected, shape is {}", op, to_string(x.shape()));
  const UpsampleAxis h{x.dim(1), out.h, linear}, w{x.dim(2), out.w, linear};
  return record(upsample(x.value(), h, w), {x},
                [h, w](const Tensor& dy) { return std::vector<Tensor>{upsample_backward(dy, h, w)}; });
}

}  // namespace

Var upsample_nearest(const Var& x, Extent2 out) { return upsampled("upsample_nearest", x, out, /*linear=*/false); }
Var upsample_bilinear(const Var& x, Extent2 out) { return upsampled("upsample_bilinear", x, out, /*linear=*/true); }

}  // namespace elinvar
