// The order of sums along a contiguous row (NUMERICS.md, rule 11), for kernels on any target.
// row_sum<T>(n, term): term(i, count) gives the vector of terms i .. i+lanes-1, of which only the first `count`
// exist and the rest are zero. row_dot is the same with fma(a, b, acc) for products.
#if defined(ELINVAR_TENSOR_REDUCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELINVAR_TENSOR_REDUCE_INL_H_
#undef ELINVAR_TENSOR_REDUCE_INL_H_
#else
#define ELINVAR_TENSOR_REDUCE_INL_H_
#endif

#include <algorithm>
#include <vector>

#include "tensor/numerics.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// Returns the first `count` lanes of v and zeros after them, for terms of absent elements that need not be zero.
template <class T>
HWY_INLINE Vec<T> first_lanes(Vec<T> v, int64_t count) {
  if (count >= Vec<T>::kLanes) return v;
  T lanes[Vec<T>::kLanes];
  v.store(lanes);
  return Vec<T>::load(lanes, count);
}

// The 64 virtual lanes of a row sum, as whole vectors.
template <class T>
struct RowLanes {
  using V = Vec<T>;
  static constexpr int64_t kVectors = kRowLanes / V::kLanes;
  V acc[kVectors];

  HWY_INLINE RowLanes() {
    for (int64_t i = 0; i < kVectors; ++i) acc[i] = V::set(T{0});
  }
  // Reduces by x[l] += x[l + s] for s = 32, 16, ..., 1, then adds the result to +0.
  HWY_INLINE T sum() const {
    alignas(64) T x[kRowLanes];
    for (int64_t i = 0; i < kVectors; ++i) acc[i].store(x + i * V::kLanes);
    for (int64_t s = kRowLanes / 2; s > 0; s /= 2)
      for (int64_t l = 0; l < s; ++l) x[l] = x[l] + x[l + s];
    return T{0} + x[0];
  }
};

// step(acc, i, count) returns acc with the terms of elements i .. i+lanes-1 added; `count` of them exist.
template <class T, class Step>
HWY_INLINE T row_segment(int64_t begin, int64_t end, Step step) {
  using V = Vec<T>;
  RowLanes<T> lanes;
  int64_t i = begin;
  for (; i + kRowLanes <= end; i += kRowLanes)
    for (int64_t v = 0; v < RowLanes<T>::kVectors; ++v) lanes.acc[v] = step(lanes.acc[v], i + v * V::kLanes, V::kLanes);
  for (int64_t v = 0; i < end; ++v, i += V::kLanes) lanes.acc[v] = step(lanes.acc[v], i, std::min(V::kLanes, end - i));
  return lanes.sum();
}

template <class T>
T reduce_partials(const std::vector<T>& x);

// Reduces rows longer than a segment: each segment alone, then the segments' sums by the same rule, which may recurse.
template <class T, class Step>
T row_reduce(int64_t n, Step step) {
  if (n <= kRowSegment) return row_segment<T>(0, n, step);
  const int64_t segments = segments_of(n);
  std::vector<T> partial(static_cast<size_t>(segments));
  for (int64_t s = 0; s < segments; ++s)
    partial[static_cast<size_t>(s)] = row_segment<T>(s * kRowSegment, std::min(n, (s + 1) * kRowSegment), step);
  return reduce_partials<T>(partial);
}

template <class T>
T reduce_partials(const std::vector<T>& x) {
  return row_reduce<T>(static_cast<int64_t>(x.size()),
                       [&](Vec<T> acc, int64_t i, int64_t count) { return acc + Vec<T>::load(x.data() + i, count); });
}

template <class T, class Term>
HWY_INLINE T row_sum(int64_t n, Term term) {
  return row_reduce<T>(n, [&](Vec<T> acc, int64_t i, int64_t count) { return acc + term(i, count); });
}

// a(i, count) and b(i, count) load vectors; absent elements are zero, so they add nothing (rule 7).
template <class T, class A, class B>
HWY_INLINE T row_dot(int64_t n, A a, B b) {
  return row_reduce<T>(n, [&](Vec<T> acc, int64_t i, int64_t count) { return fma(a(i, count), b(i, count), acc); });
}

// Returns the largest of x[0 .. n-1], n > 0. It is exact (rule 13), so the order is free; of two zeros it is either
// one. If there are NaNs it may be any element: the callers' results are then NaN in any case.
template <class T>
HWY_INLINE T row_max(const T* x, int64_t n) {
  using V = Vec<T>;
  V largest[4] = {V::set(x[0]), V::set(x[0]), V::set(x[0]), V::set(x[0])};
  int64_t i = 0;
  for (; i + 4 * V::kLanes <= n; i += 4 * V::kLanes)
    for (int v = 0; v < 4; ++v) largest[v] = max(largest[v], V::load(x + i + v * V::kLanes));
  T lanes[V::kLanes];
  max(max(largest[0], largest[1]), max(largest[2], largest[3])).store(lanes);
  T m = x[0];
  for (T l : lanes) m = m < l ? l : m;
  for (; i < n; ++i) m = m < x[i] ? x[i] : m;
  return m;
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
