// placeholder until the canonical mathematics lands
#if defined(ELINVAR_TENSOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELINVAR_TENSOR_MATH_INL_H_
#undef ELINVAR_TENSOR_MATH_INL_H_
#else
#define ELINVAR_TENSOR_MATH_INL_H_
#endif
#include "tensor/simd-inl.h"
HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {
template <class T> HWY_INLINE Vec<T> lanewise(Vec<T> x, T (*f)(T)) {
  T l[Vec<T>::kLanes];
  x.store(l);
  for (T& v : l) v = f(v);
  return Vec<T>::load(l);
}
template <class T> HWY_INLINE Vec<T> exp(Vec<T> x) { return lanewise<T>(x, [](T v) { return static_cast<T>(std::exp(v)); }); }
template <class T> HWY_INLINE Vec<T> log(Vec<T> x) { return lanewise<T>(x, [](T v) { return static_cast<T>(std::log(v)); }); }
template <class T> HWY_INLINE Vec<T> tanh(Vec<T> x) { return lanewise<T>(x, [](T v) { return static_cast<T>(std::tanh(v)); }); }
template <class T> HWY_INLINE Vec<T> erf(Vec<T> x) { return lanewise<T>(x, [](T v) { return static_cast<T>(std::erf(v)); }); }
template <class T> HWY_INLINE Vec<T> sin(Vec<T> x) { return lanewise<T>(x, [](T v) { return static_cast<T>(std::sin(v)); }); }
template <class T> HWY_INLINE Vec<T> cos(Vec<T> x) { return lanewise<T>(x, [](T v) { return static_cast<T>(std::cos(v)); }); }
}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
