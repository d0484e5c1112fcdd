#pragma once
// Layers of long short-term memory, one on another, from a state of zeros. Parameters of layer l, as in PyTorch:
// weight_ih_l<l> (4 hidden, in), weight_hh_l<l> (4 hidden, hidden), bias_ih_l<l> and bias_hh_l<l> (4 hidden), all from
// uniform(1 / sqrt(hidden)).
#include <cmath>
#include <string>
#include <vector>

#include "autograd/linear.h"
#include "autograd/lstm.h"
#include "autograd/shape.h"
#include "nn/dropout.h"
#include "nn/initializers.h"

namespace elinvar {

struct LstmLayer {
  Var weight_ih, weight_hh, bias_ih, bias_hh;

  LstmLayer(const Scope& scope, int64_t layer, int64_t in, int64_t hidden) {
    const Initializer init = init::uniform(1.0 / std::sqrt(static_cast<double>(hidden)));
    const std::string end = "_l" + std::to_string(layer);
    weight_ih = scope.parameter("weight_ih" + end, {4 * hidden, in}, init);
    weight_hh = scope.parameter("weight_hh" + end, {4 * hidden, hidden}, init);
    bias_ih = scope.parameter("bias_ih" + end, {4 * hidden}, init);
    bias_hh = scope.parameter("bias_hh" + end, {4 * hidden}, init);
  }

  // x (N, T, in) -> h (N, T, hidden)
  Var operator()(const Var& x) const {
    // The time comes first, so that the rows of each step are adjacent.
    return transpose(lstm(linear(transpose(x, 0, 1), weight_ih, bias_ih), weight_hh, bias_hh), 0, 1);
  }
};

struct Lstm {
  std::vector<LstmLayer> layers;
  Dropout dropout;  // of what passes from layer to layer

  Lstm() = default;
  Lstm(const Scope& scope, int64_t count, int64_t in, int64_t hidden, double p) : dropout{p} {
    for (int64_t l = 0; l < count; ++l) layers.emplace_back(scope, l, l == 0 ? in : hidden, hidden);
  }

  Var operator()(Var x, Context& context) const {
    for (size_t l = 0; l < layers.size(); ++l) x = layers[l](l == 0 ? x : dropout(x, context));
    return x;
  }
};

}  // namespace elinvar
