// The sum of squares of one segment in binary64 (NUMERICS.md, rules 11 and 19), for kernels on any target.
#if defined(ELINVAR_TENSOR_SQUARE_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELINVAR_TENSOR_SQUARE_SUM_INL_H_
#undef ELINVAR_TENSOR_SQUARE_SUM_INL_H_
#else
#define ELINVAR_TENSOR_SQUARE_SUM_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstdint>

#include "tensor/numerics.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// Takes at most kRowSegment elements. The lanes are a plain array, which compilers vectorise to the target's width.
template <class T>
double segment_square_sum(const T* x, int64_t n) {
  alignas(64) double acc[kRowLanes] = {};
  int64_t i = 0;
  for (; i + kRowLanes <= n; i += kRowLanes) {
    for (int64_t l = 0; l < kRowLanes; ++l) {
      const double g = static_cast<double>(x[i + l]);
      acc[l] = std::fma(g, g, acc[l]);
    }
  }
  for (int64_t l = 0; i + l < n; ++l) {
    const double g = static_cast<double>(x[i + l]);
    acc[l] = std::fma(g, g, acc[l]);
  }
  for (int64_t s = kRowLanes / 2; s > 0; s /= 2)
    for (int64_t l = 0; l < s; ++l) acc[l] = acc[l] + acc[l + s];
  return 0.0 + acc[0];
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
