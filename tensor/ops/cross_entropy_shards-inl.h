// The loss of rows from the numbers of all shards (cross_entropy_shards.h), on any target.
#if defined(ELINVAR_TENSOR_OPS_CROSS_ENTROPY_SHARDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELINVAR_TENSOR_OPS_CROSS_ENTROPY_SHARDS_INL_H_
#undef ELINVAR_TENSOR_OPS_CROSS_ENTROPY_SHARDS_INL_H_
#else
#define ELINVAR_TENSOR_OPS_CROSS_ENTROPY_SHARDS_INL_H_
#endif

#include "tensor/math-inl.h"
#include "tensor/ops/cross_entropy_shards.h"
#include "tensor/ops/top1_correct.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// Returns the root of the tree of rule 18 over x[0] .. x[n - 1], level by level; overwrites x.
template <class V>
HWY_INLINE V tree_root(V* x, int64_t n) {
  for (; n > 1; n = (n + 1) / 2) {
    for (int64_t i = 0; i < n / 2; ++i) x[i] = x[2 * i] + x[2 * i + 1];
    if (n % 2 == 1) x[n / 2] = x[n - 1];
  }
  return x[0];
}

// Computes `count` rows from `row` on, at most a vector of them.
template <class T>
HWY_INLINE void losses_of_rows(const ShardLossesArgs& a, int64_t row, int64_t count) {
  using V = Vec<T>;
  const auto term = [&](int64_t s, int64_t which) {
    return V::load(a.terms.as<T>() + (s * ShardTerm::count + which) * a.rows + row, count);
  };
  const V zero = V::set(T{0}), one = V::set(T{1}), two = V::set(T{2});
  V m = term(0, ShardTerm::max), at = zero, found = zero;
  for (int64_t s = 0; s < a.shards; ++s) {
    const V largest = term(s, ShardTerm::max), top = term(s, ShardTerm::top);
    m = select(m < largest, largest, m);
    at = select(top == zero, at, term(s, ShardTerm::target));
    found = select(top == zero, found, one);
  }
  V sums[kMostShards];
  V first = two, passed = zero;  // whether the target is the lowest of the largest classes, and its shard has passed
  int64_t s = 0;
  do {  // there is at least one shard
    const V largest = term(s, ShardTerm::max), top = term(s, ShardTerm::top);
    sums[s] = term(s, ShardTerm::sum) * exp(largest - m);
    const V as_other = select(passed == one, select(at < largest, one, two), select(largest < at, two, one));
    const V as_this = select(top == zero, as_other, top);
    first = select(as_this == two, first, one);
    passed = select(top == zero, passed, one);
  } while (++s < a.shards);
  const V l = tree_root(sums, a.shards), log_l = log(l);
  V loss = log_l - (at - m);
  if (a.smoothing != 0.0) {
    for (s = 0; s < a.shards; ++s) {
      const int64_t classes = shard_of(a.classes, static_cast<int>(s), static_cast<int>(a.shards)).count;
      sums[s] = term(s, ShardTerm::shifted_sum) + V::set(static_cast<T>(classes)) * (term(s, ShardTerm::max) - m);
    }
    const V all = tree_root(sums, a.shards), smoothing = V::set(static_cast<T>(a.smoothing)),
            rest = V::set(static_cast<T>(1.0 - a.smoothing));
    loss = rest * loss + smoothing * (log_l - all / V::set(static_cast<T>(a.classes)));
  }
  select(found == zero, zero, loss).store(a.loss.as<T>() + row, count);
  select(found == zero, zero, m).store(a.m.as<T>() + row, count);
  select(found == zero, zero, one / l).store(a.r.as<T>() + row, count);
  T verdict[V::kLanes];
  select(found == zero, zero, first).store(verdict);
  for (int64_t i = 0; i < V::kLanes && i < count; ++i) a.top1.as<uint8_t>()[row + i] = static_cast<uint8_t>(verdict[i]);
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
