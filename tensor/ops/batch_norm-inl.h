// The gradient behind a relu that follows batch norm, for both backward passes, on any target.
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

// dy where the relu let something through.
template <ReluMask kMask, class V>
HWY_INLINE V masked(V dy, V x, V y, V a, V b) {
  const V zero = V::set(0);
  if constexpr (kMask == ReluMask::from_x) return select(fma(x, a, b) <= zero, zero, dy);
  else if constexpr (kMask == ReluMask::from_y) return select(y <= zero, zero, dy);
  else return dy;
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
