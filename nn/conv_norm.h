#pragma once
// Convolutions without bias, with or without the batch norm after them, of which most convolutional networks consist.
#include "nn/conv.h"
#include "nn/norm.h"

namespace elinvar {

// The window is square and centred. groups = in = out makes the convolution depthwise.
struct ConvShape {
  int64_t in, out, kernel = 1, stride = 1, groups = 1;
};

inline Conv2d unbiased_conv(const Scope& scope, const ConvShape& s,
                            const Initializer& weight = init::kaiming_normal()) {
  return {scope,
          s.in,
          s.out,
          {s.kernel, s.kernel},
          {.stride = {s.stride, s.stride}, .padding = {s.kernel / 2, s.kernel / 2}, .groups = s.groups},
          {.bias = false, .weight = weight}};
}

struct ConvNorm {
  Conv2d conv;
  BatchNorm2d norm;

  ConvNorm() = default;
  ConvNorm(const Scope& of_conv, const Scope& of_norm, const ConvShape& shape,
           const Initializer& weight = init::kaiming_normal(), double first_norm_weight = 1.0)
      : conv(unbiased_conv(of_conv, shape, weight)), norm(of_norm, shape.out, first_norm_weight) {}

  Var operator()(const Var& x, Context& context, const BatchNormOptions& fused = {}) const {
    return norm(conv(x), context, fused);
  }
};

}  // namespace elinvar
