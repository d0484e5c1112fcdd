#pragma once
// y = x W^T + b. Parameters: weight (out, in), bias (out).
#include <cmath>

#include "autograd/linear.h"
#include "nn/initializers.h"

namespace elinvar {

struct LinearInit {
  bool bias = true;
  Initializer weight = init::fan_in_uniform();
  Initializer bias_values = {};  // default: uniform(1 / sqrt(in)), as in PyTorch
};

struct Linear {
  Var weight, bias;

  Linear() = default;
  Linear(const Scope& scope, int64_t in, int64_t out, const LinearInit& init = {})
      : weight(scope.parameter("weight", {out, in}, init.weight)) {
    if (!init.bias) return;
    const double bound = 1.0 / std::sqrt(static_cast<double>(in));
    bias = scope.parameter("bias", {out}, init.bias_values ? init.bias_values : init::uniform(bound));
  }

  // (.., in) -> (.., out)
  Var operator()(const Var& x) const { return linear(x, weight, bias); }
  operator LinearOperands() const { return {weight, bias}; }
};

}  // namespace elinvar
