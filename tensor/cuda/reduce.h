#pragma once
// The order of sums along a row (NUMERICS.md, rule 11) by the 32 threads of a warp: thread t holds virtual lanes t and
// t + 32. Included after tensor/simd-inl.h.
#include "tensor/numerics.h"
#include "tensor/simd-inl.h"

namespace elinvar::HWY_NAMESPACE {

constexpr unsigned kWholeWarp = 0xffffffffu;
static_assert(kRowLanes == 64, "two lanes for each of a warp's threads");

// Reduces the lanes; thread 0 of the warp gets the sum.
template <class T>
__device__ T reduce_lanes(T low, T high) {
  T x = low + high;
  for (int s = 16; s > 0; s /= 2) {
    const T other = __shfl_down_sync(kWholeWarp, x, static_cast<unsigned>(s));
    x = x + other;  // lanes from s on hold nothing that is used
  }
  return T{0} + x;
}

// All threads of a warp call it, and each gets the sum of the elements [begin, end) of a row, at most kRowSegment.
// step(acc, i) returns acc with element i added.
template <class T, class Step>
__device__ T warp_segment_reduce(int64_t begin, int64_t end, Step step) {
  T low{0}, high{0};
  int64_t i = begin + static_cast<int64_t>(threadIdx.x % 32);
  constexpr int kSteps = 4;  // without a branch between them, so that their loads overlap
  for (; i + (kSteps - 1) * kRowLanes + 32 < end; i += kSteps * kRowLanes) {
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      low = step(low, i + k * kRowLanes);
      high = step(high, i + k * kRowLanes + 32);
    }
  }
#pragma unroll 1
  for (; i + 32 < end; i += kRowLanes) {
    low = step(low, i);
    high = step(high, i + 32);
  }
  if (i < end) low = step(low, i);
  return __shfl_sync(kWholeWarp, reduce_lanes(low, high), 0);
}

// The same for a row of n elements: at most kRowSegment^3, more than memory holds.
template <class T, class Step>
__device__ T warp_row_reduce(int64_t n, Step step) {
  const int t = static_cast<int>(threadIdx.x % 32);
  // The sums of segments are a row again, and so are the sums of kRowSegment of them: lane l takes l, l + 64, ...
  struct Lanes {
    T low{0}, high{0};
    __device__ void take(int64_t i, T sum, int thread) {
      const int lane = static_cast<int>(i % kRowLanes);
      if (lane == thread) low = low + sum;
      if (lane == thread + 32) high = high + sum;
    }
    __device__ T sum() const { return __shfl_sync(kWholeWarp, reduce_lanes(low, high), 0); }
  };
  const int64_t segments = segments_of(n);
  Lanes row, rows;
  for (int64_t i = 0;; ++i) {
    const int64_t begin = i * kRowSegment, end = begin + kRowSegment;
    const T sum = warp_segment_reduce<T>(begin, end < n ? end : n, step);
    if (segments <= 1) return sum;
    row.take(i, sum, t);
    const bool last = i + 1 == segments;
    if (!last && (i + 1) % kRowSegment != 0) continue;
    const T sum_of_row = row.sum();
    if (segments <= kRowSegment) return sum_of_row;
    rows.take(i / kRowSegment, sum_of_row, t);
    if (last) return rows.sum();
    row = {};
  }
}

template <class T, class Term>
__device__ T warp_row_sum(int64_t n, Term term) {
  return warp_row_reduce<T>(n, [&](T acc, int64_t i) { return acc + term(i); });
}

template <class T, class A, class B>
__device__ T warp_row_dot(int64_t n, A a, B b) {
  return warp_row_reduce<T>(n, [&](T acc, int64_t i) { return fma(Vec<T>{a(i)}, Vec<T>{b(i)}, Vec<T>{acc}).v; });
}

// A row of n elements, n even and at most kHeldRow, in the registers of a warp: thread t has the pairs of elements
// 64 k + 2 t and the next one, k = 0, 1, ..., which are virtual lanes 2 t and 2 t + 1.
constexpr int kHeldPairs = 16;
constexpr int64_t kHeldRow = kRowLanes * kHeldPairs;
static_assert(kHeldRow <= kRowSegment);

// Calls f(k, number of the pair in the row) for the thread's pairs.
template <class F>
__device__ void each_pair(int n, F f) {
  const int t = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int k = 0; k < kHeldPairs; ++k)
    if (64 * k + 2 * t < n) f(k, 32 * k + t);
}

// All threads of a warp call it, and each gets the sum. step(acc, k, e) returns acc with element e of pair k added.
template <class T, class Step>
__device__ T warp_pairs_reduce(int n, Step step) {
  T even{0}, odd{0};
  each_pair(n, [&](int k, int) {
    even = step(even, k, 0);
    odd = step(odd, k, 1);
  });
  for (int s = 16; s > 0; s /= 2) {
    const T more_even = __shfl_down_sync(kWholeWarp, even, static_cast<unsigned>(s));
    const T more_odd = __shfl_down_sync(kWholeWarp, odd, static_cast<unsigned>(s));
    even = even + more_even;
    odd = odd + more_odd;
  }
  return __shfl_sync(kWholeWarp, T{0} + (even + odd), 0);
}

// Returns the largest of n > 0 elements x[i] to every thread, by the select of rule 13 (as row_max in reduce-inl.h).
template <class T, class X>
__device__ T warp_row_max(const X& x, int64_t n) {
  T m = x[0];
#pragma unroll 8  // overlaps loads
  for (int64_t i = static_cast<int64_t>(threadIdx.x % 32); i < n; i += 32) {
    const T other = x[i];
    m = m < other ? other : m;
  }
  for (int s = 16; s > 0; s /= 2) {
    const T other = __shfl_xor_sync(kWholeWarp, m, s);
    m = m < other ? other : m;
  }
  return m;
}

}  // namespace elinvar::HWY_NAMESPACE
