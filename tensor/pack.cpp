#include "tensor/pack.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/pack.cpp"
#include <hwy/foreach_target.h>

#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

template <class T>
void interleave_each(const T* const* rows, int64_t count, int64_t k_begin, int64_t k_end, T* out, int64_t step) {
  for (int64_t k = k_begin; k < k_end; ++k)
    for (int64_t r = 0; r < count; ++r) out[k * step + r] = rows[r][k];
}

#if HWY_TARGET != HWY_SCALAR
namespace hn = hwy::HWY_NAMESPACE;

// Transposes 4 x 4 matrices, whose rows are the blocks of four lanes of four vectors.
template <class D, class V>
HWY_INLINE void transpose_blocks(D d, V& a, V& b, V& c, V& e) {
  const hn::Repartition<double, D> pairs;
  const auto ab_low = hn::BitCast(pairs, hn::InterleaveLower(d, a, b)),
             ab_high = hn::BitCast(pairs, hn::InterleaveUpper(d, a, b)),
             ce_low = hn::BitCast(pairs, hn::InterleaveLower(d, c, e)),
             ce_high = hn::BitCast(pairs, hn::InterleaveUpper(d, c, e));
  a = hn::BitCast(d, hn::InterleaveLower(pairs, ab_low, ce_low));
  b = hn::BitCast(d, hn::InterleaveUpper(pairs, ab_low, ce_low));
  c = hn::BitCast(d, hn::InterleaveLower(pairs, ab_high, ce_high));
  e = hn::BitCast(d, hn::InterleaveUpper(pairs, ab_high, ce_high));
}

// Elements of 32 bits are moved as floats, whatever they are.
template <class D, class T>
HWY_INLINE auto load_bits(D d, const T* from) {
  return hn::LoadU(d, reinterpret_cast<const float*>(from));
}
template <class D, class V, class T>
HWY_INLINE void store_bits(V v, D d, T* to) {
  hn::StoreU(v, d, reinterpret_cast<float*>(to));
}

// Interleaves eight rows at once: row r and row r + 4 share a vector. Returns the k that it reached.
template <class T>
int64_t interleave_eight(const T* const* rows, int64_t k_count, T* out, int64_t step) {
  const hn::FixedTag<float, 8> d;
  const hn::FixedTag<float, 4> half;
  const auto load = [&](int r, int64_t k) HWY_ATTR {
    return hn::Combine(d, load_bits(half, rows[r + 4] + k), load_bits(half, rows[r] + k));
  };
  int64_t k = 0;
  for (; k + 4 <= k_count; k += 4, out += 4 * step) {
    auto a = load(0, k), b = load(1, k), c = load(2, k), e = load(3, k);
    transpose_blocks(d, a, b, c, e);
    store_bits(a, d, out);
    store_bits(b, d, out + step);
    store_bits(c, d, out + 2 * step);
    store_bits(e, d, out + 3 * step);
  }
  return k;
}

template <class T>
int64_t interleave_four(const T* const* rows, int64_t k_count, T* out, int64_t step) {
  const hn::FixedTag<float, 4> d;
  int64_t k = 0;
  for (; k + 4 <= k_count; k += 4, out += 4 * step) {
    auto a = load_bits(d, rows[0] + k), b = load_bits(d, rows[1] + k), c = load_bits(d, rows[2] + k),
         e = load_bits(d, rows[3] + k);
    transpose_blocks(d, a, b, c, e);
    store_bits(a, d, out);
    store_bits(b, d, out + step);
    store_bits(c, d, out + 2 * step);
    store_bits(e, d, out + 3 * step);
  }
  return k;
}
#endif

template <class T>
void interleave_words(const T* const* rows, int64_t count, int64_t k_count, T* out, int64_t step) {
#if HWY_TARGET != HWY_SCALAR
  for (; count >= 8; count -= 8, rows += 8, out += 8)
    interleave_each(rows, 8, interleave_eight(rows, k_count, out, step), k_count, out, step);
  if (count >= 4) {
    const auto four = [&](int64_t r) {
      interleave_each(rows + r, 4, interleave_four(rows + r, k_count, out + r, step), k_count, out + r, step);
    };
    four(0);
    if (count > 4) four(count - 4);  // repeats some of them
    return;
  }
#endif
  interleave_each(rows, count, 0, k_count, out, step);
}

void interleave_f32(const float* const* rows, int64_t count, int64_t k_count, float* out, int64_t step) {
  interleave_words(rows, count, k_count, out, step);
}

void interleave_pairs(const Pair* const* rows, int64_t count, int64_t k_count, Pair* out, int64_t step) {
  interleave_words(rows, count, k_count, out, step);
}

void interleave_f64(const double* const* rows, int64_t count, int64_t k_count, double* out, int64_t step) {
  interleave_each(rows, count, 0, k_count, out, step);
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(interleave_f32);
HWY_EXPORT(interleave_f64);
HWY_EXPORT(interleave_pairs);

void interleave(const float* const* rows, int64_t count, int64_t k_count, float* out, int64_t step) {
  HWY_DYNAMIC_DISPATCH(interleave_f32)(rows, count, k_count, out, step);
}
void interleave(const double* const* rows, int64_t count, int64_t k_count, double* out, int64_t step) {
  HWY_DYNAMIC_DISPATCH(interleave_f64)(rows, count, k_count, out, step);
}

void interleave(const Pair* const* rows, int64_t count, int64_t k_count, Pair* out, int64_t step) {
  HWY_DYNAMIC_DISPATCH(interleave_pairs)(rows, count, k_count, out, step);
}

}  // namespace elinvar
#endif
