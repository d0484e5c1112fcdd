#pragma once
// Element by element, with broadcasting. Gradients of broadcast operands are summed back to their shapes.
#include "autograd/var.h"
#include "tensor/philox.h"

namespace elinvar {

Var add(const Var& a, const Var& b);
Var sub(const Var& a, const Var& b);
Var mul(const Var& a, const Var& b);
Var div(const Var& a, const Var& b);
Var maximum(const Var& a, const Var& b);  // at ties the gradient goes to b, as the value does
Var minimum(const Var& a, const Var& b);
inline Var operator+(const Var& a, const Var& b) { return add(a, b); }
inline Var operator-(const Var& a, const Var& b) { return sub(a, b); }
inline Var operator*(const Var& a, const Var& b) { return mul(a, b); }
inline Var operator/(const Var& a, const Var& b) { return div(a, b); }
Var add(const Var& a, double b);
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

// Zeroes each element with probability p and scales the rest by 1 / (1 - p). Element i keeps its value if
// uniform01 of word i % 4 of rng.block(i / 4) is at least p, so the mask is a function of (seed, step, vrank, op).
Var dropout(const Var& x, double p, const Rng& rng);

// Conversion between float32 and float64 (and rounding through bf16 storage); the gradient is converted back.
Var cast(const Var& x, DType dtype);

}  // namespace elinvar
