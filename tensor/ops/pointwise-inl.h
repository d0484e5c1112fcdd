// The functions of pointwise_functions.inc for vectors of any target and element, in namespace `formulas`, and
// operators between vectors and numbers, in which these formulas are written.
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

// A number in every lane, rounded once.
template <class V>
HWY_INLINE V lanes(double x) {
  return V::set(static_cast<typename V::Element>(x));
}

template <class V, class = typename V::Element>
HWY_INLINE V operator-(V a) {
  return neg(a);
}
template <class V, class = typename V::Element>
HWY_INLINE V operator+(double a, V b) {
  return lanes<V>(a) + b;
}
template <class V, class = typename V::Element>
HWY_INLINE V operator+(V a, double b) {
  return a + lanes<V>(b);
}
template <class V, class = typename V::Element>
HWY_INLINE V operator-(double a, V b) {
  return lanes<V>(a) - b;
}
template <class V, class = typename V::Element>
HWY_INLINE V operator-(V a, double b) {
  return a - lanes<V>(b);
}
template <class V, class = typename V::Element>
HWY_INLINE V operator*(double a, V b) {
  return lanes<V>(a) * b;
}
template <class V, class = typename V::Element>
HWY_INLINE V operator*(V a, double b) {
  return a * lanes<V>(b);
}
template <class V, class = typename V::Element>
HWY_INLINE V operator/(double a, V b) {
  return lanes<V>(a) / b;
}
template <class V, class = typename V::Element>
HWY_INLINE V operator/(V a, double b) {
  return a / lanes<V>(b);
}
template <class V, class = typename V::Element>
HWY_INLINE auto operator<(double a, V b) {
  return lanes<V>(a) < b;
}
template <class V, class = typename V::Element>
HWY_INLINE auto operator<(V a, double b) {
  return a < lanes<V>(b);
}
template <class V, class = typename V::Element>
HWY_INLINE auto operator<=(double a, V b) {
  return lanes<V>(a) <= b;
}
template <class V, class = typename V::Element>
HWY_INLINE auto operator<=(V a, double b) {
  return a <= lanes<V>(b);
}

namespace formulas {

using namespace pointwise;

#define FORMULA      \
  template <class V> \
  static HWY_INLINE V
#include "tensor/ops/pointwise_functions.inc"
#undef FORMULA

}  // namespace formulas

// Functions without a parameter ignore it.
template <class Function, class V>
HWY_INLINE V value_of(V x, V parameter) {
  if constexpr (pointwise::HasParameter<Function>) return Function::f(x, parameter);
  else return Function::f(x);
}
template <class Function, class V>
HWY_INLINE V gradient_of(V dy, V saved, V parameter) {
  if constexpr (pointwise::HasParameter<Function>) return Function::gradient(dy, saved, parameter);
  else return Function::gradient(dy, saved);
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
