#pragma once
// Convolution of images (N, H, W, C). Parameters: weight (out, KH, KW, in / groups), bias (out).
#include <cmath>

#include "autograd/conv.h"
#include "autograd/shape.h"
#include "nn/initializers.h"
#include "tensor/base/check.h"

namespace elinvar {

struct Conv2dInit {
  bool bias = true;
  Initializer weight = init::fan_in_uniform();
  Initializer bias_values = {};  // default: uniform(1 / sqrt(fan_in)), as in PyTorch
};

struct Conv2d {
  Var weight, bias;
  Conv2dOptions options;

  Conv2d() = default;
  Conv2d(const Scope& scope, int64_t in, int64_t out, Extent2 kernel, const Conv2dOptions& conv_options = {},
         const Conv2dInit& init = {})
      : options(conv_options) {
    const int64_t groups = options.groups;
    check(groups > 0 && in % groups == 0 && out % groups == 0, "[conv2d] groups = {} must divide {} and {} channels",
          groups, in, out);
    weight = scope.parameter("weight", {out, kernel.h, kernel.w, in / groups}, init.weight);
    const double fan_in = static_cast<double>(kernel.h * kernel.w * (in / groups));
    const Initializer by_fan_in = init::uniform(1.0 / std::sqrt(fan_in));
    if (init.bias) bias = scope.parameter("bias", {out}, init.bias_values ? init.bias_values : by_fan_in);
  }

  Var operator()(const Var& x) const { return conv2d(x, weight, bias, options); }
};

// Parameters: weight (in, KH, KW, out), bias (out). With stride equal to the window, each pixel becomes a block.
struct ConvTranspose2d {
  Var weight, bias;
  Conv2dOptions options;

  ConvTranspose2d() = default;
  ConvTranspose2d(const Scope& scope, int64_t in, int64_t out, Extent2 kernel, const Conv2dOptions& conv_options = {},
                  const Conv2dInit& init = {})
      : options(conv_options) {
    weight = scope.parameter("weight", {in, kernel.h, kernel.w, out}, init.weight);
    const double fan_in = static_cast<double>(kernel.h * kernel.w * out);  // PyTorch's, which counts outputs
    if (init.bias) bias = scope.parameter("bias", {out}, init::uniform(1.0 / std::sqrt(fan_in)));
  }

  Var operator()(const Var& x) const { return conv_transpose2d(x, weight, bias, options); }
};

// The mean of each channel: (N, H, W, C) -> (N, C).
inline Var global_avg_pool(const Var& x) { return reshape(adaptive_avg_pool2d(x, {1, 1}), {x.dim(0), x.dim(3)}); }

}  // namespace elinvar
