#include "tensor/ops/optimizer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/optimizer.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>

#include "tensor/simd-inl.h"
#include "tensor/square_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

template <class T>
HWY_INLINE Vec<T> constant(float x) {
  return Vec<T>::set(static_cast<T>(x));
}

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
  const V scale = constant<T>(a.scale), minus_lr = constant<T>(-a.lr), momentum = constant<T>(a.momentum),
          weight_decay = constant<T>(a.weight_decay), ratio = constant<T>(a.ratio);
  const T* g = a.g.as<T>();
  T *p = a.p.as<T>(), *v = a.v.as<T>();
  each_vector<T>(begin, end, [&](int64_t i, auto count) {
    const V vp = V::load(p + i, count);
    const V d = ratio * fma(weight_decay, vp, V::load(g + i, count) * scale);
    V u = d;
    if constexpr (kMomentum) {
      const V vv = fma(momentum, V::load(v + i, count), d);
      vv.store(v + i, count);
      u = a.nesterov ? fma(momentum, vv, d) : vv;
    }
    fma(minus_lr, u, vp).store(p + i, count);
  });
}

void sgd_range(const SgdArgs& a, int64_t begin, int64_t end) {
  visit_float(a.g.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (a.v.data) sgd_range_of<T, true>(a, begin, end);
    else sgd_range_of<T, false>(a, begin, end);
  });
}

// The constants of the moments, shared by Adam and LAMB.
template <class T>
struct MomentLists {
  using V = Vec<T>;
  V beta1, one_minus_beta1, beta2, one_minus_beta2, eps, root_correction2;
  template <class Args>
  explicit HWY_INLINE MomentLists(const Args& a)
      : beta1(constant<T>(a.beta1)),
        one_minus_beta1(constant<T>(a.one_minus_beta1)),
        beta2(constant<T>(a.beta2)),
        one_minus_beta2(constant<T>(a.one_minus_beta2)),
        eps(constant<T>(a.eps)),
        root_correction2(constant<T>(a.root_correction2)) {}
  HWY_INLINE V m(V old, V d) const { return fma(beta1, old, one_minus_beta1 * d); }
  HWY_INLINE V v(V old, V d) const { return fma(beta2, old, one_minus_beta2 * (d * d)); }
  HWY_INLINE V denominator(V v) const { return fma(sqrt(v), root_correction2, eps); }
};

void adam_range(const AdamArgs& a, int64_t begin, int64_t end) {
  visit_float(a.g.dtype, [&](auto zero) {
    using T = decltype(zero);
    using V = Vec<T>;
    const MomentLists<T> lists(a);
    const V scale = constant<T>(a.scale), weight_decay = constant<T>(a.weight_decay), decay = constant<T>(a.decay),
            minus_step = constant<T>(-a.step_size);
    const T* g = a.g.as<T>();
    T *p = a.p.as<T>(), *m = a.m.as<T>(), *v = a.v.as<T>();
    each_vector<T>(begin, end, [&](int64_t i, auto count) {
      const V vp = V::load(p + i, count);
      const V d = fma(weight_decay, vp, V::load(g + i, count) * scale);
      const V vm = lists.m(V::load(m + i, count), d), vv = lists.v(V::load(v + i, count), d);
      vm.store(m + i, count);
      vv.store(v + i, count);
      fma(minus_step, vm / lists.denominator(vv), vp * decay).store(p + i, count);
    });
  });
}

template <class T>
struct LambUpdate {
  using V = Vec<T>;
  MomentLists<T> lists;
  V weight_decay, correction1;
  explicit HWY_INLINE LambUpdate(const LambArgs& a)
      : lists(a), weight_decay(constant<T>(a.weight_decay)), correction1(constant<T>(a.correction1)) {}
  HWY_INLINE V operator()(V p, V m, V v) const {
    return fma(weight_decay, p, (m * correction1) / lists.denominator(v));
  }
};

void lamb_moments_segments(const LambArgs& a, int64_t begin, int64_t end) {
  visit_float(a.g.dtype, [&](auto zero) {
    using T = decltype(zero);
    using V = Vec<T>;
    const LambUpdate<T> update(a);
    const V scale = constant<T>(a.scale);
    const T *g = a.g.as<T>(), *p = a.p.as<T>();
    T *m = a.m.as<T>(), *v = a.v.as<T>();
    alignas(64) T u[kRowSegment];
    for (int64_t s = begin; s < end; ++s) {
      const int64_t first = s * kRowSegment, n = std::min(kRowSegment, a.n - first);
      each_vector<T>(first, first + n, [&](int64_t i, auto count) {
        const V d = V::load(g + i, count) * scale;
        const V vm = update.lists.m(V::load(m + i, count), d), vv = update.lists.v(V::load(v + i, count), d);
        vm.store(m + i, count);
        vv.store(v + i, count);
        update(V::load(p + i, count), vm, vv).store(u + (i - first), count);
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
    const V minus_step = constant<T>(-a.step_size);
    const T *m = a.m.as<T>(), *v = a.v.as<T>();
    T* p = a.p.as<T>();
    each_vector<T>(begin, end, [&](int64_t i, auto count) {
      const V vp = V::load(p + i, count);
      fma(minus_step, update(vp, V::load(m + i, count), V::load(v + i, count)), vp).store(p + i, count);
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
