// The expressions of batch norm (batch_norm.h) that several kernels share, on any target.
#if defined(ELINVAR_TENSOR_OPS_BATCH_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELINVAR_TENSOR_OPS_BATCH_NORM_INL_H_
#undef ELINVAR_TENSOR_OPS_BATCH_NORM_INL_H_
#else
#define ELINVAR_TENSOR_OPS_BATCH_NORM_INL_H_
#endif

#include <algorithm>
#include <cstring>

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

// Returns 1 where the bit of the element at `at`, and of those after it, is set, else 0 (batch_norm.h).
template <class V>
HWY_INLINE V passed(const uint8_t* bits, int64_t at) {
  if constexpr (V::kLanes == 1) {
    return V::set(static_cast<typename V::Element>(bits[at / 8] >> (at % 8) & 1));
  } else {
#ifndef ELINVAR_DEVICE_CODE
    static_assert(V::kLanes <= 16);
    uint32_t word;  // the memory after a tensor may be read
    std::memcpy(&word, bits + at / 8, sizeof word);
    word >>= at % 8;
    uint8_t bytes[8] = {};
    std::memcpy(bytes, &word, sizeof word);
    return select(hn::LoadMaskBits(typename V::D(), bytes), V::set(1), V::set(0));
#endif
  }
}

// Writes the bits of `count` elements from `at` on, where y <= 0 is the mask. Elements of one byte must be written in
// order by one thread, and `at` must be a multiple of 8 unless vectors have one lane.
HWY_INLINE void store_passed(bool stopped, uint8_t* bits, int64_t at, int64_t count) {
  static_cast<void>(count);
  const auto bit = static_cast<uint8_t>(stopped ? 0 : 1 << at % 8);
  bits[at / 8] = at % 8 == 0 ? bit : static_cast<uint8_t>(bits[at / 8] | bit);
}
#if !defined(ELINVAR_DEVICE_CODE) && HWY_TARGET != HWY_SCALAR
HWY_INLINE void store_passed(V32::Mask stopped, uint8_t* bits, int64_t at, int64_t count) {
  uint8_t bytes[8] = {};
  hn::StoreMaskBits(V32::D(), mask_not(stopped), bytes);
  std::memcpy(bits + at / 8, bytes, static_cast<size_t>(std::min(V32::kLanes, count) + 7) / 8);
}
#endif

// dy where the relu passed its input on, else zero.
template <ReluMask kMask, class V>
HWY_INLINE V masked(V dy, V x, V y, V a, V b) {
  const V zero = V::set(0);
  if constexpr (kMask == ReluMask::from_x) return select(fma(x, a, b) <= zero, zero, dy);
  else if constexpr (kMask != ReluMask::none) return select(y <= zero, zero, dy);
  else return dy;
}

template <class V>
struct FactorsOfChannel {
  V inv, a, b;
};
template <class V>
HWY_INLINE FactorsOfChannel<V> factors_of(V mean, V var, V gamma, V beta, V eps) {
  const V inv = V::set(1) / sqrt(var + eps), a = gamma * inv;
  return {inv, a, fma(neg(mean), a, beta)};
}

// dx in training.
template <class V>
HWY_INLINE V gradient_of(V g, V x, V mean, V a, V mean_g, V slope) {
  return a * fma(x - mean, slope, g - mean_g);
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
