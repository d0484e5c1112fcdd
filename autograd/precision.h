#pragma once
// The precision of the products that this thread computes: of linear, matmul, conv2d and attention. Their gradients
// have that of their forward pass, wherever they are computed.
//
//   const PrecisionScope fast(Precision::bf16);   // master weights stay float32: a factor is a rounded copy
//   MicroBatchResult result = micro_batch_gradient(network, input, targets, ...);
//
// Where it is bf16, what products and norms of rows give is bfloat16, and so is what is computed from that alone. What
// is added to float32 becomes float32: a residual stream that begins with an embedding stays so. A gradient has its
// value's type (var.h).
#include "autograd/var.h"
#include "tensor/precision.h"

namespace elinvar {

Precision product_precision();  // portable, unless a scope says otherwise

// The type of what a product or a norm gives in such a scope, from values of type t.
DType activation_type(DType t, Precision precision = product_precision());

// x in the type that it is computed in: for functions that bfloat16 is too rare in to have them for it.
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
