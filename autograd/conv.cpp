#include "autograd/conv.h"

#include "tensor/ops/conv2d.h"
#include "tensor/ops/reduce.h"

namespace elinvar {

Var conv2d(const Var& x, const Var& weight, const Var& bias, const Conv2dOptions& o) {
  const ConvOptions options{.stride_h = o.stride.h, .stride_w = o.stride.w, .pad_h = o.padding.h, .pad_w = o.padding.w,
                            .dilation_h = o.dilation.h, .dilation_w = o.dilation.w, .groups = o.groups};
  const Tensor images = x.value(), filters = weight.value();
  Tensor y = conv2d(images, filters, bias.defined() ? bias.value() : Tensor{}, options);
  std::vector<Var> inputs{x, weight};
  if (bias.defined()) inputs.push_back(bias);
  return record(std::move(y), inputs, [x, weight, bias, images, filters, options](const Tensor& dy) {
    std::vector<Tensor> grads(bias.defined() ? 3 : 2);
    if (x.requires_grad()) grads[0] = conv2d_grad_input(dy, filters, images.shape(), options);
    if (weight.requires_grad()) grads[1] = conv2d_grad_filter(dy, images, filters.shape(), options);
    if (bias.requires_grad()) grads[2] = sum_to(dy, {filters.dim(0)});
    return grads;
  });
}

}  // namespace elinvar
