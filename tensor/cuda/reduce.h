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

// All threads of a warp call it, and each gets the sum. step(acc, i) returns acc with element i added. At most
// kRowSegment^3 elements, more than memory holds.
template <class T, class Step>
__device__ T warp_row_reduce(int64_t n, Step step) {
  const int t = static_cast<int>(threadIdx.x % 32);
  const auto segment = [&](int64_t begin, int64_t end) {
    T low{0}, high{0};
    int64_t i = begin + t;
#pragma unroll 4  // overlaps loads of several terms
    for (; i + 32 < end; i += kRowLanes) {
      low = step(low, i);
      high = step(high, i + 32);
    }
    if (i < end) low = step(low, i);
    return __shfl_sync(kWholeWarp, reduce_lanes(low, high), 0);
  };
  if (n <= kRowSegment) return segment(0, n);
  // The segments' sums are a row again: lane l takes sums l, l + 64, ... of at most kRowSegment.
  const auto reduce = [&](int64_t count, auto sum_at) {
    T low{0}, high{0};
    for (int64_t i = 0; i < count; ++i) {
      const T sum = sum_at(i);
      const int lane = static_cast<int>(i % kRowLanes);
      if (lane == t) low = low + sum;
      if (lane == t + 32) high = high + sum;
    }
    return __shfl_sync(kWholeWarp, reduce_lanes(low, high), 0);
  };
  const int64_t segments = segments_of(n), rows = segments_of(segments);
  const auto row_of_segments = [&](int64_t row) {
    const int64_t first = row * kRowSegment, left = segments - first;
    return reduce(left < kRowSegment ? left : kRowSegment, [&](int64_t i) {
      const int64_t begin = (first + i) * kRowSegment, end = begin + kRowSegment;
      return segment(begin, end < n ? end : n);
    });
  };
  return rows == 1 ? row_of_segments(0) : reduce(rows, row_of_segments);
}

template <class T, class Term>
__device__ T warp_row_sum(int64_t n, Term term) {
  return warp_row_reduce<T>(n, [&](T acc, int64_t i) { return acc + term(i); });
}

template <class T, class A, class B>
__device__ T warp_row_dot(int64_t n, A a, B b) {
  return warp_row_reduce<T>(n, [&](T acc, int64_t i) { return fma(Vec<T>{a(i)}, Vec<T>{b(i)}, Vec<T>{acc}).v; });
}

// Returns the largest of n > 0 elements x[i] to every thread, by the select of rule 13 (as row_max in reduce-inl.h).
template <class T, class X>
__device__ T warp_row_max(const X& x, int64_t n) {
  T m = x[0];
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
