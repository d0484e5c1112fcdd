#pragma once
// Element by element, with broadcasting. Gradients of broadcast operands are summed back to their shapes
// (tensor/ops/reduce.h, sum_to). The formulas of values and gradients are in tensor/ops/pointwise.h.
#include "autograd/var.h"
#include "tensor/philox.h"

namespace elinvar {

Var add(const Var& a, const Var& b);
Var sub(const Var& a, const Var& b);
Var mul(const Var& a, const Var& b);
Var div(const Var& a, const Var& b);
Var maximum(const Var& a, const Var& b);  // the value is b, and the gradient goes to it, at ties and beside a NaN
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
Var neg(const Var& x);
inline Var operator-(const Var& x) { return neg(x); }

Var abs(const Var& x);
Var exp(const Var& x);
Var log(const Var& x);
Var sqrt(const Var& x);
Var rsqrt(const Var& x);
Var square(const Var& x);
Var reciprocal(const Var& x);
Var tanh(const Var& x);
Var erf(const Var& x);
Var sin(const Var& x);
Var cos(const Var& x);
Var sigmoid(const Var& x);
Var relu(const Var& x);
Var silu(const Var& x);
Var gelu(const Var& x);       // x/2 (1 + erf(x / sqrt 2))
Var gelu_tanh(const Var& x);  // the tanh form, as in GPT-2

// condition (uint8, broadcasts) ? a : b
Var where(const Tensor& condition, const Var& a, const Var& b);

// Zeroes each element with probability p and scales the rest by 1 / (1 - p). The mask is a
// function of (seed, step, vrank, op) that tensor/ops/dropout.h defines; the gradient computes it again.
Var dropout(const Var& x, double p, const Rng& rng);

// Conversion between floating types; the gradient is converted back.
Var cast(const Var& x, DType dtype);

}  // namespace elinvar
