#pragma once
// A table of vectors that are looked up by index. Parameter: weight (rows, channels), from N(0, 1) as in PyTorch.
#include "autograd/shape.h"
#include "nn/initializers.h"

namespace elinvar {

struct Embedding {
  Var weight;

  Embedding() = default;
  Embedding(const Scope& scope, int64_t rows, int64_t channels, const Initializer& init = init::normal(1.0))
      : weight(scope.parameter("weight", {rows, channels}, init)) {}

  // index (..) int32 or int64 -> (.., channels)
  Var operator()(const Tensor& index) const { return embedding(weight, index); }
};

}  // namespace elinvar
