// The order of sums along a column (NUMERICS.md, rule 12), for kernels on any target: chains of kColumnLeaf rows,
// each from +0, then the adjacent pairwise tree over the chains, an odd one passing through, then +0 added.
//
// The tree is reduced while rows are read, like carries in a binary counter, so a column of any length needs a few
// dozen vectors and its rows are read once. A range of rows that starts at a multiple of kColumnLeaf * 2^k and has that
// length is a whole subtree: ranges may be summed separately and their sums combined by the same tree with chains of
// one.
#if defined(ELINVAR_TENSOR_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELINVAR_TENSOR_COLUMNS_INL_H_
#undef ELINVAR_TENSOR_COLUMNS_INL_H_
#else
#define ELINVAR_TENSOR_COLUMNS_INL_H_
#endif

#include <algorithm>

#include "tensor/numerics.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// The tree over chains, for kVectors adjacent vectors of columns: carry[k] holds the sum of 2^k neighbouring chains if
// bit k of their number is set. (Neither a class nor forced inline: g++ 12 fails on both.)
template <class V, int kVectors>
using Carries = V[48][kVectors];  // 2^48 chains: more than memory holds

// Adds the next chain. On return `chain` holds the sum of the subtree that it became part of.
template <class V, int kVectors>
void carry_chain(V (*carry)[kVectors], int64_t& chains, V* chain) {
  int level = 0;
  for (; chains >> level & 1; ++level)
    for (int v = 0; v < kVectors; ++v) chain[v] = carry[level][v] + chain[v];
  for (int v = 0; v < kVectors; ++v) carry[level][v] = chain[v];
  ++chains;
}

// Sets `sum` to the sum of all chains, +0 if there are none.
template <class V, int kVectors>
void sum_carries(const V (*carry)[kVectors], int64_t chains, V* sum) {
  for (int v = 0; v < kVectors; ++v) sum[v] = V::set(0);
  bool first = true;
  for (int level = 0; chains >> level != 0; ++level) {
    if ((chains >> level & 1) == 0) continue;
    for (int v = 0; v < kVectors; ++v) sum[v] = first ? carry[level][v] : carry[level][v] + sum[v];
    first = false;
  }
  for (int v = 0; v < kVectors; ++v) sum[v] = V::set(0) + sum[v];
}

// Sums kVectors vectors of columns, from column c on; if kVectors is 1, only the first `count` columns exist. step(acc,
// k, c, count) returns acc with the terms of row k and columns c .. c+count-1 added. finish(sum, c, count) takes the
// sums.
template <class T, int kVectors, class Step, class Finish>
HWY_INLINE void reduce_columns(int64_t n, int64_t chain, int64_t c, int64_t count, Step step, Finish finish) {
  using V = Vec<T>;
  Carries<V, kVectors> carry;
  int64_t chains = 0;
  V acc[kVectors];
  const int64_t width = kVectors > 1 ? V::kLanes : count;
  for (int64_t begin = 0; begin < n; begin += chain) {
    for (int v = 0; v < kVectors; ++v) acc[v] = V::set(T{0});
    const int64_t end = std::min(n, begin + chain);
    for (int64_t k = begin; k < end; ++k)
      for (int v = 0; v < kVectors; ++v) acc[v] = step(acc[v], k, c + v * V::kLanes, width);
    carry_chain<V, kVectors>(carry, chains, acc);
  }
  sum_carries<V, kVectors>(carry, chains, acc);
  for (int v = 0; v < kVectors; ++v) finish(acc[v], c + v * V::kLanes, width);
}

// Sums the columns [begin, end) over n rows, with step and finish as in reduce_columns. `chain` is kColumnLeaf, or 1 to
// combine the sums of ranges.
template <class T, class Step, class Finish>
HWY_INLINE void column_sums(int64_t n, int64_t chain, int64_t begin, int64_t end, Step step, Finish finish) {
  constexpr int64_t kLanes = Vec<T>::kLanes;
  int64_t c = begin;
  for (; c + 8 * kLanes <= end; c += 8 * kLanes) reduce_columns<T, 8>(n, chain, c, kLanes, step, finish);
  for (; c + 4 * kLanes <= end; c += 4 * kLanes) reduce_columns<T, 4>(n, chain, c, kLanes, step, finish);
  for (; c + 2 * kLanes <= end; c += 2 * kLanes) reduce_columns<T, 2>(n, chain, c, kLanes, step, finish);
  for (; c < end; c += kLanes) reduce_columns<T, 1>(n, chain, c, std::min(kLanes, end - c), step, finish);
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
