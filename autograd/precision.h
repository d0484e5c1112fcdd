#pragma once
// The precision of the products that this thread computes in linear, matmul, conv2d and attention. Gradients use the
// precision of their forward pass, in whatever scope they are computed.
//
//   const PrecisionScope fast(Precision::bf16);   // master weights stay float32: a factor is a rounded copy
//   MicroBatchResult result = micro_batch_gradient(network, input, targets, ...);
//
// With bf16, products and row norms return bfloat16, as do functions whose operands are all bfloat16. Adding float32
// and bfloat16 gives float32, so a residual stream that begins with an embedding stays float32. Every gradient has the
// type of its value (var.h).
#include "autograd/var.h"
#include "tensor/precision.h"

namespace elinvar {

Precision product_precision();  // portable outside any scope

// The type that a product or a norm returns in the current scope for values of type t.
DType activation_type(DType t, Precision precision = product_precision());

// Converts x to the type in which it is computed, for functions without a bfloat16 version.
Var widened(const Var& x);

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
