// The operations of attention on rows of scores, for any target (NUMERICS.md, rule 14).
#if defined(ELINVAR_ATTENTION_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELINVAR_ATTENTION_ROWS_INL_H_
#undef ELINVAR_ATTENTION_ROWS_INL_H_
#else
#define ELINVAR_ATTENTION_ROWS_INL_H_
#endif

#include "tensor/math-inl.h"
#include "tensor/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// Scores s[0, n) become e = exp(scale * s - m); s[n, limit) becomes zero. Returns m and r = 1 / sum(e).
template <class T>
void scores_to_weights(T* s, int64_t n, int64_t limit, T scale, T& m_out, T& r_out) {
  using V = Vec<T>;
  const V vscale = V::set(scale);
  T m = -std::numeric_limits<T>::infinity();
  V largest = V::set(m);
  int64_t j = 0;
  for (; j + V::kLanes <= n; j += V::kLanes) {
    const V x = V::load(s + j) * vscale;
    x.store(s + j);
    largest = max(largest, x);
  }
  T lanes[V::kLanes];
  largest.store(lanes);
  for (T l : lanes) m = m < l ? l : m;
  for (; j < n; ++j) {
    s[j] = s[j] * scale;
    m = m < s[j] ? s[j] : m;
  }
  const V vm = V::set(m);
  for (j = 0; j < n; j += V::kLanes) exp(V::load(s + j, n - j) - vm).store(s + j, n - j);
  for (j = n; j < limit; ++j) s[j] = T{0};
  const T l = row_sum<T>(n, [&](int64_t i, int64_t count) { return V::load(s + i, count); });
  m_out = m;
  r_out = T{1} / l;
}

// Scores s[0, n) become p = exp(scale * s - m) * r; s[n, limit) becomes zero.
template <class T>
void scores_to_probabilities(T* s, int64_t n, int64_t limit, T scale, T m, T r) {
  using V = Vec<T>;
  const V vscale = V::set(scale), vm = V::set(m), vr = V::set(r);
  for (int64_t j = 0; j < n; j += V::kLanes) (exp(V::load(s + j, n - j) * vscale - vm) * vr).store(s + j, n - j);
  for (int64_t j = n; j < limit; ++j) s[j] = T{0};
}

// dp[0, n) becomes ds = (p * (dp - sum(do * o))) * scale; dp[n, limit) becomes zero.
template <class T>
void score_gradients(T* dp, const T* p, int64_t n, int64_t limit, const T* d_o, const T* o, int64_t size, T scale) {
  using V = Vec<T>;
  const T dot = row_dot<T>(
      size, [&](int64_t i, int64_t count) { return V::load(d_o + i, count); },
      [&](int64_t i, int64_t count) { return V::load(o + i, count); });
  const V vdot = V::set(dot), vscale = V::set(scale);
  for (int64_t j = 0; j < n; j += V::kLanes)
    ((V::load(p + j, n - j) * (V::load(dp + j, n - j) - vdot)) * vscale).store(dp + j, n - j);
  for (int64_t j = n; j < limit; ++j) dp[j] = T{0};
}

template <class T>
void scale_row(T* x, int64_t n, T factor) {
  using V = Vec<T>;
  for (int64_t i = 0; i < n; i += V::kLanes) (V::load(x + i, n - i) * V::set(factor)).store(x + i, n - i);
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
