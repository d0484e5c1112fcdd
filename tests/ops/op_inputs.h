#pragma once
// The inputs of op rows: functions of a name alone, so that a failure can be repeated.
#include <string>

#include "tests/ops/op_row.h"

namespace elinvar::test {

// `adversarial` makes normal and positive inputs of subnormals, signed zeros (normal only), huge and tiny magnitudes
// among ordinary ones; products of two of them and their sums stay finite. With `zeros` all floating inputs are zeros
// of either sign.
enum class Values { ordinary, adversarial, zeros };

// Floating inputs are float32, indices int64, masks uint8.
Tensors make_inputs(const Inputs& inputs, const std::string& name, Values values = Values::ordinary);

// Standard normal values, rounded to float32 and then converted to `dtype`.
Tensor normal(const Shape& shape, const std::string& name, DType dtype = DType::f32);

inline Var zeros(const Shape& shape) { return Tensor::zeros(shape); }

// Returns the same elements in a layout that is not contiguous if the shape allows one.
Tensor in_other_layout(const Tensor& x);

}  // namespace elinvar::test
