#include "tensor/ops/optimizer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/optimizer.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>

#include "tensor/ops/optimizer-inl.h"
#include "tensor/square_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// Calls step(offset, count) for the vectors of [begin, end), a full count being known at compile time.
template <class T, class Step>
HWY_INLINE void each_vector(int64_t begin, int64_t end, Step step) {
  constexpr int64_t kLanes = Vec<T>::kLanes;
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) step(i, std::integral_constant<int64_t, kLanes>());
  if (i < end) step(i, end - i);
}

template <class T, bool kMomentum>
void sgd_range_of(const SgdArgs& a, int64_t begin, int64_t end) {
  using V = Vec<T>;
  const SgdUpdate<T, kMomentum> update(a);
  const T* g = a.g.as<T>();
  T *p = a.p.as<T>(), *v = a.v.as<T>();
  each_vector<T>(begin, end, [&](int64_t i, auto count) {
    V vv = V::set(T{0});
    if constexpr (kMomentum) vv = V::load(v + i, count);
    const V vp = update(V::load(g + i, count), V::load(p + i, count), vv);
    if constexpr (kMomentum) vv.store(v + i, count);
    vp.store(p + i, count);
  });
}

void sgd_range(const SgdArgs& a, int64_t begin, int64_t end) {
  visit_float(a.g.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (a.v.data) sgd_range_of<T, true>(a, begin, end);
    else sgd_range_of<T, false>(a, begin, end);
  });
}

void adam_range(const AdamArgs& a, int64_t begin, int64_t end) {
  visit_float(a.g.dtype, [&](auto zero) {
    using T = decltype(zero);
    using V = Vec<T>;
    const AdamUpdate<T> update(a);
    const T* g = a.g.as<T>();
    T *p = a.p.as<T>(), *m = a.m.as<T>(), *v = a.v.as<T>();
    each_vector<T>(begin, end, [&](int64_t i, auto count) {
      V vm = V::load(m + i, count), vv = V::load(v + i, count);
      const V vp = update(V::load(g + i, count), V::load(p + i, count), vm, vv);
      vm.store(m + i, count);
      vv.store(v + i, count);
      vp.store(p + i, count);
    });
  });
}

void lamb_moments_segments(const LambArgs& a, int64_t begin, int64_t end) {
  visit_float(a.g.dtype, [&](auto zero) {
    using T = decltype(zero);
    using V = Vec<T>;
    const LambUpdate<T> update(a);
    const T *g = a.g.as<T>(), *p = a.p.as<T>();
    T *m = a.m.as<T>(), *v = a.v.as<T>();
    alignas(64) T u[kRowSegment];
    for (int64_t s = begin; s < end; ++s) {
      const int64_t first = s * kRowSegment, n = std::min(kRowSegment, a.n - first);
      each_vector<T>(first, first + n, [&](int64_t i, auto count) {
        V vm = V::load(m + i, count), vv = V::load(v + i, count);
        update.moments(V::load(g + i, count), V::load(p + i, count), vm, vv).store(u + (i - first), count);
        vm.store(m + i, count);
        vv.store(v + i, count);
      });
      a.square_sums.as<double>()[2 * s] = segment_square_sum(p + first, n);
      a.square_sums.as<double>()[2 * s + 1] = segment_square_sum(u, n);
    }
  });
}

void lamb_apply_range(const LambArgs& a, int64_t begin, int64_t end) {
  visit_float(a.g.dtype, [&](auto zero) {
    using T = decltype(zero);
    using V = Vec<T>;
    const LambUpdate<T> update(a);
    const T *m = a.m.as<T>(), *v = a.v.as<T>();
    T* p = a.p.as<T>();
    each_vector<T>(begin, end, [&](int64_t i, auto count) {
      update.apply(V::load(p + i, count), V::load(m + i, count), V::load(v + i, count)).store(p + i, count);
    });
  });
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(sgd_range);
HWY_EXPORT(adam_range);
HWY_EXPORT(lamb_moments_segments);
HWY_EXPORT(lamb_apply_range);

namespace {

constexpr int64_t kGrain = 8192;  // elements a thread should have at least

// Deals the elements of all parameters, one after another, to threads; update(args, begin, end) does a part of one.
template <class Args, class Update>
void each_range(CpuStream& stream, std::span<const Args> all, Update update) {
  int64_t total = 0;
  for (const Args& a : all) total += a.n;
  stream.parallel_for(total, kGrain, [&](int64_t begin, int64_t end) {
    int64_t first = 0;
    for (const Args& a : all) {
      const int64_t from = std::max<int64_t>(begin - first, 0), to = std::min(end - first, a.n);
      if (from < to) update(a, from, to);
      first += a.n;
    }
  });
}

}  // namespace

void sgd(CpuStream& stream, std::span<const SgdArgs> all) {
  each_range(stream, all, [](const SgdArgs& a, int64_t b, int64_t e) { HWY_DYNAMIC_DISPATCH(sgd_range)(a, b, e); });
}
void adam(CpuStream& stream, std::span<const AdamArgs> all) {
  each_range(stream, all, [](const AdamArgs& a, int64_t b, int64_t e) { HWY_DYNAMIC_DISPATCH(adam_range)(a, b, e); });
}
void lamb_moments(CpuStream& stream, const LambArgs& a) {
  stream.parallel_for((a.n + kRowSegment - 1) / kRowSegment, 2, [&](int64_t b, int64_t e) {
    HWY_DYNAMIC_DISPATCH(lamb_moments_segments)(a, b, e);
  });
}
void lamb_apply(CpuStream& stream, const LambArgs& a) {
  stream.parallel_for(a.n, kGrain, [&](int64_t b, int64_t e) { HWY_DYNAMIC_DISPATCH(lamb_apply_range)(a, b, e); });
}

}  // namespace elinvar
#endif
