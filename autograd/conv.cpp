#include "autograd/conv.h"

#include "autograd/exact_factor.h"
#include "autograd/pointwise.h"
#include "autograd/precision.h"
#include "tensor/base/check.h"
#include "tensor/ops/conv2d_depthwise.h"
#include "tensor/ops/reduce.h"

namespace elinvar {
namespace {

Tensor filters_of(const Var& weight, const ConvGeometry& g) {
  return weight.value().reshape({g.o, g.kh * g.kw, g.c / g.groups});
}
Quantized rounded(const Var& weight, const ConvGeometry& g) { return quantize_weight(filters_of(weight, g), g.groups); }

ConvOptions raw(const Conv2dOptions& o) {
  return {.stride_h = o.stride.h,
          .stride_w = o.stride.w,
          .pad_h = o.padding.h,
          .pad_w = o.padding.w,
          .dilation_h = o.dilation.h,
          .dilation_w = o.dilation.w,
          .groups = o.groups};
}

// Whether a convolution is computed again for a gradient that needs its result: sums are short, so that this takes
// little time, and the result is larger than the images, which are kept anyway.
bool is_computed_again(const ConvGeometry& g) {
  constexpr int64_t kFewTerms = 64;
  return g.kh * g.kw * (g.c / g.groups) <= kFewTerms && g.o * g.oh * g.ow > g.c * g.h * g.w;
}

// The backward pass rounds the weight again, with the same exponents, as in linear().
Var exact_conv2d(const Var& x, const Var& weight, const Var& bias, const ConvOptions& options, const ConvGeometry& g) {
  const Quantized w = rounded(weight, g);
  Quantized images;
  ExactFactor factor(x, {g.n, g.h * g.w, g.c}, w.channels, images);
  const Tensor added = bias.defined() ? bias.value() : Tensor{};
  Tensor y = exact_conv2d(images, w, added, x.shape(), weight.shape(), options);
  std::vector<Var> inputs{x, weight};
  if (bias.defined()) inputs.push_back(bias);
  Origin origin;
  if (is_computed_again(g))
    origin.compute = [factor, weight, added, options, g, x_shape = x.shape()] {
      return exact_conv2d(factor.of_channels(), rounded(weight, g), added, x_shape, weight.shape(), options);
    };
  // The gradient keeps the record of x, without its value.
  return record(
      std::move(y), inputs,
      [factor = std::move(factor), rows = w.rows, channels = w.channels, weight, options, g, input = Var(x.node()),
       has_bias = bias.defined(), db = bias.requires_grad()](Tensor dy) mutable {
        std::vector<Tensor> grads(has_bias ? 3 : 2);
        if (db) grads[2] = sum_to(dy, {g.o});
        QuantizedBoth of_dy = rounded_gradient(dy.reshape({g.n, g.oh * g.ow, g.o}), input.requires_grad(), rows,
                                               weight.requires_grad(), factor.rows());
        dy = {};  // each tensor is freed when the products need it no more
        if (input.requires_grad()) {
          const Quantized filters = pair_weight_rows(filters_of(weight, g), g.groups, rows, channels);
          grads[0] =
              exact_conv2d_grad_input(of_dy.rows, filters, input.shape(), weight.shape(), options, gathered(input));
          of_dy.rows = {};
        }
        if (weight.requires_grad())
          grads[1] = exact_conv2d_grad_filter(of_dy.channels, factor.of_rows(), input.shape(), weight.shape(), options);
        return grads;
      },
      std::move(origin));
}

}  // namespace

Var conv2d(const Var& input, const Var& weight, const Var& bias, const Conv2dOptions& o) {
  const ConvOptions options = raw(o);
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

Var conv_transpose2d(const Var& input, const Var& weight, const Var& bias, const Conv2dOptions& o) {
  check(input.value().ndim() == 4 && weight.value().ndim() == 4 && input.dim(3) == weight.dim(0) && o.groups == 1,
        "[conv_transpose2d] images (N, H, W, C) and filters (C, KH, KW, O) in one group expected, got {} and {}",
        to_string(input.shape()), to_string(weight.shape()));
  const auto side = [](int64_t in, int64_t window, int64_t stride, int64_t padding, int64_t dilation) {
    return (in - 1) * stride - 2 * padding + dilation * (window - 1) + 1;
  };
  const Shape shape = {input.dim(0), side(input.dim(1), weight.dim(1), o.stride.h, o.padding.h, o.dilation.h),
                       side(input.dim(2), weight.dim(2), o.stride.w, o.padding.w, o.dilation.w), weight.dim(3)};
  check(shape[1] > 0 && shape[2] > 0, "[conv_transpose2d] padding leaves nothing of images of {} x {}", input.dim(1),
        input.dim(2));
  const ConvOptions options = raw(o);
  const Precision precision = product_precision() == Precision::exact ? Precision::portable : product_precision();
  const Tensor own_images = factor("conv_transpose2d", input.value(), precision),
               own_filters = factor("conv_transpose2d", weight.value(), precision);
  Tensor y = conv2d_grad_input(own_images, own_filters, shape, options, precision);
  const Tensor images = weight.requires_grad() ? own_images : Tensor{},
               filters = input.requires_grad() ? own_filters : Tensor{};
  const Var result = record(std::move(y), {input, weight},
                            [input, weight, images, filters, options, precision](const Tensor& gradient) {
                              const Tensor dy = factor("conv_transpose2d", gradient.to_contiguous(), precision);
                              std::vector<Tensor> grads(2);
                              if (input.requires_grad()) grads[0] = conv2d(dy, filters, {}, options, precision);
                              if (weight.requires_grad())
                                grads[1] = conv2d_grad_filter(images, dy, weight.shape(), options, precision);
                              return grads;
                            });
  return bias.defined() ? result + bias : result;
}

}  // namespace elinvar
