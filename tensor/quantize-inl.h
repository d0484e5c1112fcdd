// Rounding to the integers of exact products (quantized.h), for any target. Loops are plain, for the compiler to
// vectorize. Magnitudes are compared as bits, which orders NaN above infinity.
#if defined(ELINVAR_TENSOR_QUANTIZE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELINVAR_TENSOR_QUANTIZE_INL_H_
#undef ELINVAR_TENSOR_QUANTIZE_INL_H_
#else
#define ELINVAR_TENSOR_QUANTIZE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "tensor/ops/quantize.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

HWY_INLINE int32_t magnitude(float x) { return std::bit_cast<int32_t>(x) & 0x7fffffff; }

// Rounds x, whose magnitude is at most 2^kFractionBits, to the nearest integer, ties to even; larger numbers have no
// defined result. NaN gives 0: the factor 0 of a row with an infinity has turned that infinity into NaN. The integer is
// limited, not x, because compilers have vector instructions for that, but not for std::min of numbers that may be NaN.
HWY_INLINE int32_t quantized(float x) {
  constexpr float kRounds = 0x1.8p23f;  // a sum with it ends in the bits of the integer
  const float sum = x + kRounds;
  int32_t q = std::bit_cast<int32_t>(sum) - std::bit_cast<int32_t>(kRounds);
  q = std::min(std::max(q, -kMostQuantized), kMostQuantized);
  return sum == sum ? q : 0;
}

// The bits of a Pair.
HWY_INLINE int32_t pair_of(int32_t first, int32_t second) {
  return (first & 0xffff) | static_cast<int32_t>(static_cast<uint32_t>(second) << 16);
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
