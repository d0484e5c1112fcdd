// The bodies of the pointwise ops, written once for vectors of any target and element: Body<Op>::f is the value,
// Body<Op>::gradient(dy, s) the gradient from what the op saves. The formulas are the ones in pointwise.h.
#if defined(ELINVAR_TENSOR_OPS_POINTWISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELINVAR_TENSOR_OPS_POINTWISE_INL_H_
#undef ELINVAR_TENSOR_OPS_POINTWISE_INL_H_
#else
#define ELINVAR_TENSOR_OPS_POINTWISE_INL_H_
#endif

#include "tensor/math-inl.h"
#include "tensor/ops/pointwise.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

template <class V>
HWY_INLINE V constant(double x) {
  return V::set(static_cast<typename V::Element>(x));
}

template <class Op>
struct Body;

template <>
struct Body<pointwise::Neg> {
  template <class V>
  static HWY_INLINE V f(V x) {
    return neg(x);
  }
  template <class V>
  static HWY_INLINE V gradient(V dy, V) {
    return neg(dy);
  }
};

template <>
struct Body<pointwise::Abs> {
  template <class V>
  static HWY_INLINE V f(V x) {
    return abs(x);
  }
  template <class V>
  static HWY_INLINE V gradient(V dy, V s) {
    const V zero = constant<V>(0);
    return select(s < zero, neg(dy), select(zero < s, dy, zero));
  }
};

template <>
struct Body<pointwise::Exp> {
  template <class V>
  static HWY_INLINE V f(V x) {
    return exp(x);
  }
  template <class V>
  static HWY_INLINE V gradient(V dy, V s) {
    return dy * s;
  }
};

template <>
struct Body<pointwise::Log> {
  template <class V>
  static HWY_INLINE V f(V x) {
    return log(x);
  }
  template <class V>
  static HWY_INLINE V gradient(V dy, V s) {
    return dy / s;
  }
};

template <>
struct Body<pointwise::Sqrt> {
  template <class V>
  static HWY_INLINE V f(V x) {
    return sqrt(x);
  }
  template <class V>
  static HWY_INLINE V gradient(V dy, V s) {
    return (dy * constant<V>(0.5)) / s;
  }
};

template <>
struct Body<pointwise::Rsqrt> {
  template <class V>
  static HWY_INLINE V f(V x) {
    return constant<V>(1) / sqrt(x);
  }
  template <class V>
  static HWY_INLINE V gradient(V dy, V s) {
    return (dy * constant<V>(-0.5)) * (s * (s * s));
  }
};

template <>
struct Body<pointwise::Square> {
  template <class V>
  static HWY_INLINE V f(V x) {
    return x * x;
  }
  template <class V>
  static HWY_INLINE V gradient(V dy, V s) {
    return dy * (s + s);
  }
};

template <>
struct Body<pointwise::Reciprocal> {
  template <class V>
  static HWY_INLINE V f(V x) {
    return constant<V>(1) / x;
  }
  template <class V>
  static HWY_INLINE V gradient(V dy, V s) {
    return neg(dy * (s * s));
  }
};

template <>
struct Body<pointwise::Tanh> {
  template <class V>
  static HWY_INLINE V f(V x) {
    return tanh(x);
  }
  template <class V>
  static HWY_INLINE V gradient(V dy, V s) {
    return dy * fma(neg(s), s, constant<V>(1));
  }
};

template <>
struct Body<pointwise::Erf> {
  template <class V>
  static HWY_INLINE V f(V x) {
    return erf(x);
  }
  template <class V>
  static HWY_INLINE V gradient(V dy, V s) {
    return dy * (constant<V>(1.1283791670955126) * exp(neg(s * s)));
  }
};

template <>
struct Body<pointwise::Sin> {
  template <class V>
  static HWY_INLINE V f(V x) {
    return sin(x);
  }
  template <class V>
  static HWY_INLINE V gradient(V dy, V s) {
    return dy * cos(s);
  }
};

template <>
struct Body<pointwise::Cos> {
  template <class V>
  static HWY_INLINE V f(V x) {
    return cos(x);
  }
  template <class V>
  static HWY_INLINE V gradient(V dy, V s) {
    return neg(dy * sin(s));
  }
};

template <>
struct Body<pointwise::Sigmoid> {
  template <class V>
  static HWY_INLINE V f(V x) {
    const V one = constant<V>(1);
    return one / (one + exp(neg(x)));
  }
  template <class V>
  static HWY_INLINE V gradient(V dy, V s) {
    return dy * (s * (constant<V>(1) - s));
  }
};

template <>
struct Body<pointwise::Relu> {
  template <class V>
  static HWY_INLINE V f(V x) {
    const V zero = constant<V>(0);
    return select(x <= zero, zero, x);
  }
  template <class V>
  static HWY_INLINE V gradient(V dy, V s) {
    const V zero = constant<V>(0);
    return select(s <= zero, zero, dy);
  }
};

template <>
struct Body<pointwise::Silu> {
  template <class V>
  static HWY_INLINE V f(V x) {
    return x / (constant<V>(1) + exp(neg(x)));
  }
  template <class V>
  static HWY_INLINE V gradient(V dy, V s) {
    const V one = constant<V>(1), g = one / (one + exp(neg(s)));
    return dy * (g * fma(s, one - g, one));
  }
};

template <>
struct Body<pointwise::Gelu> {
  static constexpr double kC1 = 0.70710678118654752, kC2 = 0.39894228040143268;
  template <class V>
  static HWY_INLINE V f(V x) {
    return (x * constant<V>(0.5)) * (constant<V>(1) + erf(x * constant<V>(kC1)));
  }
  template <class V>
  static HWY_INLINE V gradient(V dy, V s) {
    const V cdf = constant<V>(0.5) * (constant<V>(1) + erf(s * constant<V>(kC1)));
    const V pdf = constant<V>(kC2) * exp((s * s) * constant<V>(-0.5));
    return dy * fma(s, pdf, cdf);
  }
};

template <>
struct Body<pointwise::GeluTanh> {
  static constexpr double kC3 = 0.79788456080286536, kCubic = 0.044715;
  template <class V>
  static HWY_INLINE V inner(V x, V q) {
    return tanh((x * constant<V>(kC3)) * fma(constant<V>(kCubic), q, constant<V>(1)));
  }
  template <class V>
  static HWY_INLINE V f(V x) {
    return (x * constant<V>(0.5)) * (constant<V>(1) + inner(x, x * x));
  }
  template <class V>
  static HWY_INLINE V gradient(V dy, V s) {
    const V one = constant<V>(1), half = constant<V>(0.5), q = s * s, t = inner(s, q);
    const V slope = constant<V>(kC3) * fma(constant<V>(3 * kCubic), q, one);
    return dy * fma((s * half) * fma(neg(t), t, one), slope, half * (one + t));
  }
};

template <>
struct Body<pointwise::Add> {
  template <class V>
  static HWY_INLINE V f(V a, V b) {
    return a + b;
  }
};

template <>
struct Body<pointwise::Sub> {
  template <class V>
  static HWY_INLINE V f(V a, V b) {
    return a - b;
  }
};

template <>
struct Body<pointwise::Mul> {
  template <class V>
  static HWY_INLINE V f(V a, V b) {
    return a * b;
  }
};

template <>
struct Body<pointwise::Div> {
  template <class V>
  static HWY_INLINE V f(V a, V b) {
    if constexpr (std::is_integral_v<typename V::Element>) {
      if (b.v == 0) return b;
      if (b.v == -1) return b * a;  // also of the lowest number, whose quotient would overflow
    }
    return a / b;
  }
};

template <>
struct Body<pointwise::Maximum> {
  template <class V>
  static HWY_INLINE V f(V a, V b) {
    return max(a, b);
  }
};

template <>
struct Body<pointwise::Minimum> {
  template <class V>
  static HWY_INLINE V f(V a, V b) {
    return min(a, b);
  }
};

template <>
struct Body<pointwise::AddRelu> {
  template <class V>
  static HWY_INLINE V f(V a, V b) {
    return Body<pointwise::Relu>::f(a + b);
  }
};

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
