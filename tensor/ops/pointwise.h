#pragma once
// Functions of one and two tensors, element by element. Every op is a tag below with its formula (the
// specification of its bits: each sign is one rounding, fma(a, b, c) one for both), a body for all targets in
// pointwise-inl.h, and a place in a list; kernels, checks, gradients and tests follow from the lists.
//
//   Tensor y = tanh(x);                    // or unary<pointwise::Tanh>(x)
//   Tensor z = add(y, row);                // NumPy's broadcasting, any strides
//
// Unary ops take float32 and float64, and on GPUs bfloat16 (precision.h). Binary ops also take int32 and int64: sums
// and products wrap, quotients truncate, and a division by zero gives 0. Other types, and operands of different types,
// throw UsageError.
#include <type_traits>

#include "tensor/precision.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {
namespace pointwise {

template <class... Ops>
struct OpList {
  static constexpr int kSize = sizeof...(Ops);
  template <class Op>
  static constexpr int index_of() {
    constexpr bool same[] = {std::is_same_v<Op, Ops>...};
    int i = 0;
    while (!same[i]) ++i;
    return i;
  }
};

enum class Saves { nothing, input, output };  // what the gradient is computed from, s below

// dx(dy, s): the gradient formula. c1 = sqrt(1/2), c2 = 1/sqrt(2 pi), c3 = sqrt(2/pi), each rounded once.
struct Neg {  // -x                                    dx = -dy
  static constexpr auto name = "neg";
  static constexpr Saves saves = Saves::nothing;
};
struct Abs {  // the sign bit cleared                  dx = s < 0 ? -dy : 0 < s ? dy : 0
  static constexpr auto name = "abs";
  static constexpr Saves saves = Saves::input;
};
struct Exp {  //                                       dx = dy * s
  static constexpr auto name = "exp";
  static constexpr Saves saves = Saves::output;
};
struct Log {  //                                       dx = dy / s
  static constexpr auto name = "log";
  static constexpr Saves saves = Saves::input;
};
struct Sqrt {  //                                       dx = (dy * 0.5) / s
  static constexpr auto name = "sqrt";
  static constexpr Saves saves = Saves::output;
};
struct Rsqrt {  // 1 / sqrt(x)                           dx = (dy * -0.5) * (s * (s * s))
  static constexpr auto name = "rsqrt";
  static constexpr Saves saves = Saves::output;
};
struct Square {  // x * x                                 dx = dy * (s + s)
  static constexpr auto name = "square";
  static constexpr Saves saves = Saves::input;
};
struct Reciprocal {  // 1 / x                                 dx = -(dy * (s * s))
  static constexpr auto name = "reciprocal";
  static constexpr Saves saves = Saves::output;
};
struct Tanh {  //                                       dx = dy * fma(-s, s, 1)
  static constexpr auto name = "tanh";
  static constexpr Saves saves = Saves::output;
};
struct Erf {  //                                       dx = dy * (2/sqrt(pi) * exp(-(s * s)))
  static constexpr auto name = "erf";
  static constexpr Saves saves = Saves::input;
};
struct Sin {  //                                       dx = dy * cos(s)
  static constexpr auto name = "sin";
  static constexpr Saves saves = Saves::input;
};
struct Cos {  //                                       dx = -(dy * sin(s))
  static constexpr auto name = "cos";
  static constexpr Saves saves = Saves::input;
};
struct Sigmoid {  // 1 / (1 + exp(-x))                     dx = dy * (s * (1 - s))
  static constexpr auto name = "sigmoid";
  static constexpr Saves saves = Saves::output;
};
struct Relu {  // x <= 0 ? +0 : x, so NaN stays         dx = s <= 0 ? +0 : dy
  static constexpr auto name = "relu";
  static constexpr Saves saves = Saves::output;
};
struct Silu {  // x / (1 + exp(-x))                     g = 1 / (1 + exp(-s)); dx = dy * (g * fma(s, 1 - g, 1))
  static constexpr auto name = "silu";
  static constexpr Saves saves = Saves::input;
};
struct Gelu {  // (x * 0.5) * (1 + erf(x * c1))
               // dx = dy * fma(s, c2 * exp((s * s) * -0.5), 0.5 * (1 + erf(s * c1)))
  static constexpr auto name = "gelu";
  static constexpr Saves saves = Saves::input;
};
struct GeluTanh {  // q = x * x; t = tanh((x * c3) * fma(0.044715, q, 1)); y = (x * 0.5) * (1 + t)
                   // dx, with q and t of s in place of x:
                   //   dy * fma((s * 0.5) * fma(-t, t, 1), c3 * fma(3 * 0.044715, q, 1), 0.5 * (1 + t))
  static constexpr auto name = "gelu_tanh";
  static constexpr Saves saves = Saves::input;
};
using UnaryOps = OpList<Neg, Abs, Exp, Log, Sqrt, Rsqrt, Square, Reciprocal, Tanh, Erf, Sin, Cos, Sigmoid, Relu, Silu,
                        Gelu, GeluTanh>;

struct Add {
  static constexpr auto name = "add";
};  // a + b
struct Sub {
  static constexpr auto name = "sub";
};  // a - b
struct Mul {
  static constexpr auto name = "mul";
};  // a * b
struct Div {
  static constexpr auto name = "div";
};  // a / b
struct Maximum {
  static constexpr auto name = "maximum";
};  // b < a ? a : b (NUMERICS.md, rule 13)
struct Minimum {
  static constexpr auto name = "minimum";
};  // a < b ? a : b
struct AddRelu {
  static constexpr auto name = "add_relu";
};  // relu(a + b)
using BinaryOps = OpList<Add, Sub, Mul, Div, Maximum, Minimum, AddRelu>;

}  // namespace pointwise

// Contiguous operands of n elements; `op` is a place in UnaryOps.
struct UnaryArgs {
  In x;
  Out y;
  int64_t n;
  int op;
};
void unary(CpuStream&, const UnaryArgs&);
template <class B>
void unary(GpuStream<B>&, const UnaryArgs&);

struct UnaryBackwardArgs {
  In dy, saved;
  Out dx;
  int64_t n;
  int op;
};
void unary_backward(CpuStream&, const UnaryBackwardArgs&);
template <class B>
void unary_backward(GpuStream<B>&, const UnaryBackwardArgs&);

// Any strides, of each operand over the result's shape; `op` is a place in BinaryOps. y may be a itself.
struct BinaryArgs {
  In a, b;
  Out y;
  Shape shape, a_strides, b_strides, y_strides;
  int op;
};
void binary(CpuStream&, const BinaryArgs&);
template <class B>
void binary(GpuStream<B>&, const BinaryArgs&);

Tensor unary(int op, const Tensor& x);
Tensor unary_backward(int op, Tensor dy, const Tensor& saved);
// The result has the type of the operands. Beside bfloat16, on a GPU, the other may be float32, and so is the result
// then, unless the float32 is a single number (of no dimension), which leaves the other's type.
Tensor binary(int op, const Tensor& a, const Tensor& b);
void binary_into(int op, Tensor& y, const Tensor& b);

template <class Op>
Tensor unary(const Tensor& x) {
  return unary(pointwise::UnaryOps::index_of<Op>(), x);
}
// dx from dy and what Op::saves names: x or y (of a Saves::nothing op anything of the right shape). A dy that is moved
// in is written over if it is the only handle on its elements.
template <class Op>
Tensor unary_backward(Tensor dy, const Tensor& saved) {
  return unary_backward(pointwise::UnaryOps::index_of<Op>(), std::move(dy), saved);
}
template <class Op>
Tensor binary(const Tensor& a, const Tensor& b) {
  return binary(pointwise::BinaryOps::index_of<Op>(), a, b);
}
// b converted once to the type that a is computed in.
template <class Op>
Tensor binary(const Tensor& a, double b) {
  return binary<Op>(a, Tensor::scalar(b, computed_in(a.dtype()), a.device()));
}
// y = Op(y, b), where b broadcasts to y's shape and no two elements of y are one (as in an expanded view).
template <class Op>
void binary_into(Tensor& y, const Tensor& b) {
  binary_into(pointwise::BinaryOps::index_of<Op>(), y, b);
}

inline Tensor neg(const Tensor& x) { return unary<pointwise::Neg>(x); }
inline Tensor abs(const Tensor& x) { return unary<pointwise::Abs>(x); }
inline Tensor exp(const Tensor& x) { return unary<pointwise::Exp>(x); }
inline Tensor log(const Tensor& x) { return unary<pointwise::Log>(x); }
inline Tensor sqrt(const Tensor& x) { return unary<pointwise::Sqrt>(x); }
inline Tensor rsqrt(const Tensor& x) { return unary<pointwise::Rsqrt>(x); }
inline Tensor square(const Tensor& x) { return unary<pointwise::Square>(x); }
inline Tensor reciprocal(const Tensor& x) { return unary<pointwise::Reciprocal>(x); }
inline Tensor tanh(const Tensor& x) { return unary<pointwise::Tanh>(x); }
inline Tensor erf(const Tensor& x) { return unary<pointwise::Erf>(x); }
inline Tensor sin(const Tensor& x) { return unary<pointwise::Sin>(x); }
inline Tensor cos(const Tensor& x) { return unary<pointwise::Cos>(x); }
inline Tensor sigmoid(const Tensor& x) { return unary<pointwise::Sigmoid>(x); }
inline Tensor relu(const Tensor& x) { return unary<pointwise::Relu>(x); }
inline Tensor silu(const Tensor& x) { return unary<pointwise::Silu>(x); }
inline Tensor gelu(const Tensor& x) { return unary<pointwise::Gelu>(x); }
inline Tensor gelu_tanh(const Tensor& x) { return unary<pointwise::GeluTanh>(x); }

inline Tensor add(const Tensor& a, const Tensor& b) { return binary<pointwise::Add>(a, b); }
inline Tensor sub(const Tensor& a, const Tensor& b) { return binary<pointwise::Sub>(a, b); }
inline Tensor mul(const Tensor& a, const Tensor& b) { return binary<pointwise::Mul>(a, b); }
inline Tensor div(const Tensor& a, const Tensor& b) { return binary<pointwise::Div>(a, b); }
inline Tensor maximum(const Tensor& a, const Tensor& b) { return binary<pointwise::Maximum>(a, b); }
inline Tensor minimum(const Tensor& a, const Tensor& b) { return binary<pointwise::Minimum>(a, b); }
inline Tensor add_relu(const Tensor& a, const Tensor& b) { return binary<pointwise::AddRelu>(a, b); }
inline Tensor add(const Tensor& a, double b) { return binary<pointwise::Add>(a, b); }
inline Tensor sub(const Tensor& a, double b) { return binary<pointwise::Sub>(a, b); }
inline Tensor mul(const Tensor& a, double b) { return binary<pointwise::Mul>(a, b); }
inline Tensor div(const Tensor& a, double b) { return binary<pointwise::Div>(a, b); }

inline void add_into(Tensor& y, const Tensor& x) { binary_into<pointwise::Add>(y, x); }
// sum + term. Moved in, a sum whose storage has no other handle is added to in place; an expanded one never is.
Tensor add_to(Tensor sum, const Tensor& term);
inline void scale_into(Tensor& y, double factor) {
  binary_into<pointwise::Mul>(y, Tensor::scalar(factor, computed_in(y.dtype()), y.device()));
}

}  // namespace elinvar
