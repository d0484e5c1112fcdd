#pragma once
// Pointwise functions, with broadcasting. Gradients of broadcast operands are summed back to their shapes
// (tensor/ops/reduce.h, sum_to). tensor/ops/pointwise_functions.inc defines values and gradients.
#include "autograd/var.h"
#include "tensor/ops/pointwise.h"
#include "tensor/philox.h"

namespace elinvar {

Var add(const Var& a, const Var& b);
Var sub(const Var& a, const Var& b);
Var mul(const Var& a, const Var& b);
Var div(const Var& a, const Var& b);
Var maximum(const Var& a, const Var& b);  // value and gradient are b's at ties and if either is NaN
Var minimum(const Var& a, const Var& b);
Var add_relu(const Var& a, const Var& b);  // relu(add(a, b)) in one pass over memory
inline Var operator+(const Var& a, const Var& b) { return add(a, b); }
inline Var operator-(const Var& a, const Var& b) { return sub(a, b); }
inline Var operator*(const Var& a, const Var& b) { return mul(a, b); }
inline Var operator/(const Var& a, const Var& b) { return div(a, b); }
Var add(const Var& a, double b);  // b is rounded to the type of a
Var mul(const Var& a, double b);
inline Var operator+(const Var& a, double b) { return add(a, b); }
inline Var operator-(const Var& a, double b) { return add(a, -b); }
inline Var operator*(const Var& a, double b) { return mul(a, b); }

// Declares Var exp(const Var& x) and so on for every unary function, with Var elu(const Var& x, double parameter) for
// those that have a parameter.
#define ELINVAR_OF_ELEMENTS(name, Function) Var name(const Var& x);
#define ELINVAR_WITH_PARAMETER(name, Function) \
  Var name(const Var& x, double parameter = pointwise::Function::parameter.value);
ELINVAR_UNARY_FUNCTIONS(ELINVAR_OF_ELEMENTS, ELINVAR_WITH_PARAMETER)
#undef ELINVAR_OF_ELEMENTS
#undef ELINVAR_WITH_PARAMETER
inline Var operator-(const Var& x) { return neg(x); }

// condition (uint8, broadcasts) ? a : b
Var where(const Tensor& condition, const Var& a, const Var& b);

// Zeroes each element with probability p and scales the rest by 1 / (1 - p). The mask is a function of (seed, step,
// vrank, op) that tensor/ops/dropout.h defines; the gradient recomputes it.
Var dropout(const Var& x, double p, const Rng& rng);

// Conversion between floating types; the gradient is converted back.
Var cast(const Var& x, DType dtype);

}  // namespace elinvar
