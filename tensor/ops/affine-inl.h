// An affine function of the values of a row, with relu if requested, before they are rounded (ops/quantize.h), for any
// target.
#ifndef ELINVAR_TENSOR_OPS_AFFINE_OF_
#define ELINVAR_TENSOR_OPS_AFFINE_OF_
namespace elinvar {

// fma(x[i], a[i], b[i]), then relu if requested; x[i] itself where a is null.
struct AffineOf {
  const float *a = nullptr, *b = nullptr;
  bool relu = false;
};

}  // namespace elinvar
#endif

#if defined(ELINVAR_TENSOR_OPS_AFFINE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELINVAR_TENSOR_OPS_AFFINE_INL_H_
#undef ELINVAR_TENSOR_OPS_AFFINE_INL_H_
#else
#define ELINVAR_TENSOR_OPS_AFFINE_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// Calls f with the function that `of` describes, of x and an index.
template <class F>
HWY_INLINE auto visit_affine(const AffineOf& of, F f) {
  const float *a = of.a, *b = of.b;
  if (!a) return f([](float x, int64_t) { return x; });
  if (!of.relu) return f([a, b](float x, int64_t i) { return std::fma(x, a[i], b[i]); });
  return f([a, b](float x, int64_t i) {
    const float y = std::fma(x, a[i], b[i]);
    return y <= 0 ? 0.0f : y;
  });
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
