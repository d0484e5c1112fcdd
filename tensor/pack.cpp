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

// Interleaves eight rows at once: row r and row r + 4 share a vector. Returns the k that it reached.
int64_t interleave_eight(const float* const* rows, int64_t k_count, float* out, int64_t step) {
  const hn::FixedTag<float, 8> d;
  const hn::FixedTag<float, 4> half;
  const auto load = [&](int r, int64_t k) HWY_ATTR {
    return hn::Combine(d, hn::LoadU(half, rows[r + 4] + k), hn::LoadU(half, rows[r] + k));
  };
  int64_t k = 0;
  for (; k + 4 <= k_count; k += 4, out += 4 * step) {
    auto a = load(0, k), b = load(1, k), c = load(2, k), e = load(3, k);
    transpose_blocks(d, a, b, c, e);
    hn::StoreU(a, d, out);
    hn::StoreU(b, d, out + step);
    hn::StoreU(c, d, out + 2 * step);
    hn::StoreU(e, d, out + 3 * step);
  }
  return k;
}

int64_t interleave_four(const float* const* rows, int64_t k_count, float* out, int64_t step) {
  const hn::FixedTag<float, 4> d;
  int64_t k = 0;
  for (; k + 4 <= k_count; k += 4, out += 4 * step) {
    auto a = hn::LoadU(d, rows[0] + k), b = hn::LoadU(d, rows[1] + k), c = hn::LoadU(d, rows[2] + k),
         e = hn::LoadU(d, rows[3] + k);
    transpose_blocks(d, a, b, c, e);
    hn::StoreU(a, d, out);
    hn::StoreU(b, d, out + step);
    hn::StoreU(c, d, out + 2 * step);
    hn::StoreU(e, d, out + 3 * step);
  }
  return k;
}
#endif

void interleave_f32(const float* const* rows, int64_t count, int64_t k_count, float* out, int64_t step) {
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

void interleave_f64(const double* const* rows, int64_t count, int64_t k_count, double* out, int64_t step) {
  interleave_each(rows, count, 0, k_count, out, step);
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(interleave_f32);
HWY_EXPORT(interleave_f64);

void interleave(const float* const* rows, int64_t count, int64_t k_count, float* out, int64_t step) {
  HWY_DYNAMIC_DISPATCH(interleave_f32)(rows, count, k_count, out, step);
}
void interleave(const double* const* rows, int64_t count, int64_t k_count, double* out, int64_t step) {
  HWY_DYNAMIC_DISPATCH(interleave_f64)(rows, count, k_count, out, step);
}

}  // namespace elinvar
#endif
