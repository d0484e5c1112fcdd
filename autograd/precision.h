#pragma once
// The precision of the products that this thread computes: of linear, matmul, conv2d and attention. Their gradients
// have that of their forward pass, wherever they are computed. Everything else is float32 in any case.
//
//   const PrecisionScope fast(Precision::bf16);   // master weights stay float32: a factor is a rounded copy
//   LeafResult result = leaf(network, input, targets, ...);
#include "tensor/precision.h"

namespace elinvar {

Precision product_precision();  // portable, unless a scope says otherwise

class PrecisionScope {
 public:
  explicit PrecisionScope(Precision precision);
  ~PrecisionScope();
  PrecisionScope(const PrecisionScope&) = delete;
  PrecisionScope& operator=(const PrecisionScope&) = delete;

 private:
  Precision previous_;
};

}  // namespace elinvar
