// The expression lists of optimizer.h for vectors of any target and element.
#if defined(ELINVAR_TENSOR_OPS_OPTIMIZER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELINVAR_TENSOR_OPS_OPTIMIZER_INL_H_
#undef ELINVAR_TENSOR_OPS_OPTIMIZER_INL_H_
#else
#define ELINVAR_TENSOR_OPS_OPTIMIZER_INL_H_
#endif

#include "tensor/ops/optimizer.h"
#include "tensor/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

template <class T>
HWY_INLINE Vec<T> constant(float x) {
  return Vec<T>::set(static_cast<T>(x));
}

// Returns the new p. v exists, and is updated, with momentum only.
template <class T, bool kMomentum>
struct SgdUpdate {
  using V = Vec<T>;
  V scale, minus_lr, momentum, weight_decay, ratio;
  bool nesterov;
  HWY_INLINE explicit SgdUpdate(const SgdArgs& a)
      : scale(constant<T>(a.scale)),
        minus_lr(constant<T>(-a.lr)),
        momentum(constant<T>(a.momentum)),
        weight_decay(constant<T>(a.weight_decay)),
        ratio(constant<T>(a.ratio)),
        nesterov(a.nesterov) {}
  HWY_INLINE V operator()(V g, V p, V& v) const {
    const V d = ratio * fma(weight_decay, p, g * scale);
    V u = d;
    if constexpr (kMomentum) {
      v = fma(momentum, v, d);
      u = nesterov ? fma(momentum, v, d) : v;
    }
    return fma(minus_lr, u, p);
  }
};

// The moments, shared by Adam and LAMB.
template <class T>
struct MomentLists {
  using V = Vec<T>;
  V beta1, one_minus_beta1, beta2, one_minus_beta2, eps, root_correction2;
  template <class Args>
  HWY_INLINE explicit MomentLists(const Args& a)
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

// Updates the moments and returns the new p.
template <class T>
struct AdamUpdate {
  using V = Vec<T>;
  MomentLists<T> lists;
  V scale, weight_decay, decay, minus_step;
  HWY_INLINE explicit AdamUpdate(const AdamArgs& a)
      : lists(a),
        scale(constant<T>(a.scale)),
        weight_decay(constant<T>(a.weight_decay)),
        decay(constant<T>(a.decay)),
        minus_step(constant<T>(-a.step_size)) {}
  HWY_INLINE V operator()(V g, V p, V& m, V& v) const {
    const V d = fma(weight_decay, p, g * scale);
    m = lists.m(m, d);
    v = lists.v(v, d);
    return fma(minus_step, m / lists.denominator(v), p * decay);
  }
};

template <class T>
struct LambUpdate {
  using V = Vec<T>;
  MomentLists<T> lists;
  V scale, weight_decay, correction1, minus_step;
  HWY_INLINE explicit LambUpdate(const LambArgs& a)
      : lists(a),
        scale(constant<T>(a.scale)),
        weight_decay(constant<T>(a.weight_decay)),
        correction1(constant<T>(a.correction1)),
        minus_step(constant<T>(-a.step_size)) {}
  HWY_INLINE V u(V p, V m, V v) const { return fma(weight_decay, p, (m * correction1) / lists.denominator(v)); }
  // Updates the moments and returns u.
  HWY_INLINE V moments(V g, V p, V& m, V& v) const {
    const V d = g * scale;
    m = lists.m(m, d);
    v = lists.v(v, d);
    return u(p, m, v);
  }
  // Returns the new p.
  HWY_INLINE V apply(V p, V m, V v) const { return fma(minus_step, u(p, m, v), p); }
};

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
