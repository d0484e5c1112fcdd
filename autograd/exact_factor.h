#pragma once
// Factors of exact products (tensor/quantized.h) in functions y = x w whose weight is a parameter: x, which the forward
// pass needs as pairs of channels and the gradient of w as pairs of rows, and dy, which is rounded in two ways.
#include <memory>

#include "autograd/var.h"
#include "tensor/quantized.h"

namespace elinvar {

// Keeps x between the passes: its origin, from which it is rounded again, or else the rounded numbers.
// On CPUs, several products of one x keep the same numbers if their weights' exponents are equal.
class ExactFactor {
 public:
  // Rounds x, seen as `shape` (rows, positions, channels), against the exponents of a weight's channels. `rounded`
  // receives the result, for the forward pass.
  ExactFactor(const Var& x, const Shape& shape, const Tensor& against, Quantized& rounded);

  const Tensor& rows() const { return kept_->rows; }  // exponents
  Quantized of_channels() const;                      // the rounded numbers as pairs of channels
  Quantized of_rows() const;                          // and as pairs of rows

 private:
  std::shared_ptr<const Quantized> kept_;  // without q if there is an origin
  Origin origin_;
  Shape shape_;
  Tensor against_;
};

// Rounds dy (rows, positions, channels) for those gradients that are wanted: of x, against the exponents of a weight's
// rows, and of w, against those of x's rows. The other one is empty.
QuantizedBoth rounded_gradient(const Tensor& dy, bool of_x, const Tensor& weight_rows, bool of_w, const Tensor& x_rows);

}  // namespace elinvar
