#include "autograd/conv.h"

#include "tensor/ops/conv2d.h"
#include "tensor/ops/reduce.h"

namespace elinvar {

Var conv2d(const Var& x, const Var& weight, const Var& bias, const Conv2dOptions& o) {
  const ConvOptions options{.stride_h = o.stride.h,
                            .stride_w = o.stride.w,
                            .pad_h = o.padding.h,
                            .pad_w = o.padding.w,
                            .dilation_h = o.dilation.h,
                            .dilation_w = o.dilation.w,
                            .groups = o.groups};
  Tensor y = conv2d(x.value(), weight.value(), bias.defined() ? bias.value() : Tensor{}, options);
  std::vector<Var> inputs{x, weight};
  if (bias.defined()) inputs.push_back(bias);
  const Tensor images = weight.requires_grad() ? x.value() : Tensor{},
               filters = x.requires_grad() ? weight.value() : Tensor{};
  return record(std::move(y), inputs, [x, weight, bias, images, filters, options](const Tensor& gradient) {
    const Tensor dy = gradient.to_contiguous();
    std::vector<Tensor> grads(bias.defined() ? 3 : 2);
    if (x.requires_grad()) grads[0] = conv2d_grad_input(dy, filters, x.shape(), options);
    if (weight.requires_grad()) grads[1] = conv2d_grad_filter(dy, images, weight.shape(), options);
    if (bias.requires_grad()) grads[2] = sum_to(dy, {weight.dim(0)});
    return grads;
  });
}

}  // namespace elinvar
