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

// The bound of PyTorch's initial biases.
inline Initializer bias_init(const LinearInit& init, int64_t in) {
  return init.bias_values ? init.bias_values : init::uniform(1.0 / std::sqrt(static_cast<double>(in)));
}

struct Linear {
  Var weight, bias;

  Linear() = default;
  Linear(const Scope& scope, int64_t in, int64_t out, const LinearInit& init = {})
      : weight(scope.parameter("weight", {out, in}, init.weight)) {
    if (init.bias) bias = scope.parameter("bias", {out}, bias_init(init, in));
  }

  // (.., in) -> (.., out)
  Var operator()(const Var& x) const { return linear(x, weight, bias); }
  operator LinearOperands() const { return {weight, bias}; }
};

}  // namespace elinvar
