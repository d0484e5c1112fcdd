#include "autograd/conv.h"

#include "autograd/precision.h"
#include "tensor/ops/conv2d_depthwise.h"
#include "tensor/ops/reduce.h"

namespace elinvar {
namespace {

Quantized rounded(const Var& weight, const ConvGeometry& g) {
  return quantize_weight(weight.value().reshape({g.o, g.kh * g.kw, g.c / g.groups}), g.groups);
}

// The backward pass rounds the weight again, as in linear().
Var exact_conv2d(const Var& x, const Var& weight, const Var& bias, const ConvOptions& options, const ConvGeometry& g) {
  Quantized images;
  Tensor y;
  {
    const Quantized w = rounded(weight, g);
    images = quantize_rows(x.value().reshape({g.n, g.h * g.w, g.c}), w.channels);
    y = exact_conv2d(images, w, bias.defined() ? bias.value() : Tensor{}, x.shape(), weight.shape(), options);
  }
  std::vector<Var> inputs{x, weight};
  if (bias.defined()) inputs.push_back(bias);
  return record(std::move(y), inputs,
                [images, weight, options, g, x_shape = x.shape(), dx = x.requires_grad(), has_bias = bias.defined(),
                 db = bias.requires_grad()](const Tensor& given) {
                  const Tensor dy = given.reshape({g.n, g.oh * g.ow, g.o});
                  std::vector<Tensor> grads(has_bias ? 3 : 2);
                  if (dx) {
                    const Quantized w = rounded(weight, g);
                    grads[0] = exact_conv2d_grad_input(quantize_rows(dy, w.rows), pair_rows(w), x_shape, weight.shape(),
                                                       options);
                  }
                  if (weight.requires_grad())
                    grads[1] = exact_conv2d_grad_filter(quantize_channels(dy, images.rows), pair_rows(images), x_shape,
                                                        weight.shape(), options);
                  if (db) grads[2] = sum_to(given, {g.o});
                  return grads;
                });
}

}  // namespace

Var conv2d(const Var& input, const Var& weight, const Var& bias, const Conv2dOptions& o) {
  const ConvOptions options{.stride_h = o.stride.h,
                            .stride_w = o.stride.w,
                            .pad_h = o.padding.h,
                            .pad_w = o.padding.w,
                            .dilation_h = o.dilation.h,
                            .dilation_w = o.dilation.w,
                            .groups = o.groups};
  const ConvGeometry g = conv_geometry(input.shape(), weight.shape(), options);
  if (product_precision() == Precision::exact && has_exact_products(g))
    return exact_conv2d(input, weight, bias, options, g);
  // Depthwise convolutions are limited by memory, and libraries may lack a deterministic gradient for them.
  const bool depthwise = is_depthwise(g);
  const Precision precision =
      depthwise || product_precision() == Precision::exact ? Precision::portable : product_precision();
  const Var x = depthwise ? widened(input) : input;
  const Tensor own_images = factor("conv2d", x.value(), precision),
               own_filters = factor("conv2d", weight.value(), precision);
  Tensor y = conv2d(own_images, own_filters, bias.defined() ? bias.value() : Tensor{}, options, precision);
  std::vector<Var> inputs{x, weight};
  if (bias.defined()) inputs.push_back(bias);
  const Tensor images = weight.requires_grad() ? own_images : Tensor{},
               filters = x.requires_grad() ? own_filters : Tensor{};
  return record(std::move(y), inputs, [x, weight, bias, images, filters, options, precision](const Tensor& gradient) {
    const Tensor dy = gradient.to_contiguous(), dy_factor = factor("conv2d", dy, precision);
    std::vector<Tensor> grads(bias.defined() ? 3 : 2);
    if (x.requires_grad()) grads[0] = conv2d_grad_input(dy_factor, filters, x.shape(), options, precision);
    if (weight.requires_grad()) grads[1] = conv2d_grad_filter(dy_factor, images, weight.shape(), options, precision);
    if (bias.requires_grad()) grads[2] = sum_to(dy, {weight.dim(0)});
    return grads;
  });
}

}  // namespace elinvar
