// The expressions of batch norm (batch_norm.h) that several kernels share, on any target.
#if defined(ELINVAR_TENSOR_OPS_BATCH_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELINVAR_TENSOR_OPS_BATCH_NORM_INL_H_
#undef ELINVAR_TENSOR_OPS_BATCH_NORM_INL_H_
#else
#define ELINVAR_TENSOR_OPS_BATCH_NORM_INL_H_
#endif

#include "tensor/ops/batch_norm.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// Joins the mean and M2 of nb rows to those of the na rows before them.
template <class T>
HWY_INLINE void merge_moments(Vec<T>& ma, Vec<T>& m2a, T na, Vec<T> mb, Vec<T> m2b, T nb) {
  using V = Vec<T>;
  const T w = nb / (na + nb);
  const V d = mb - ma;
  ma = fma(d, V::set(w), ma);
  m2a = (m2a + m2b) + (d * d) * V::set(na * w);
}

// dy where the relu passed its input on, else zero.
template <ReluMask kMask, class V>
HWY_INLINE V masked(V dy, V x, V y, V a, V b) {
  const V zero = V::set(0);
  if constexpr (kMask == ReluMask::from_x) return select(fma(x, a, b) <= zero, zero, dy);
  else if constexpr (kMask == ReluMask::from_y) return select(y <= zero, zero, dy);
  else return dy;
}

// dx in training.
template <class V>
HWY_INLINE V gradient_of(V g, V x, V mean, V a, V mean_g, V slope) {
  return a * fma(x - mean, slope, g - mean_g);
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
