// The formulas of lstm.h, for vectors of any target and element.
#if defined(ELINVAR_TENSOR_OPS_LSTM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELINVAR_TENSOR_OPS_LSTM_INL_H_
#undef ELINVAR_TENSOR_OPS_LSTM_INL_H_
#else
#define ELINVAR_TENSOR_OPS_LSTM_INL_H_
#endif

#include "tensor/ops/pointwise-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

template <class V>
struct LstmCell {
  V i, f, g, o, c, h;
};

// Takes the gates before their functions, and c[t-1].
template <class V>
HWY_INLINE LstmCell<V> lstm_cell_of(V i, V f, V g, V o, V before) {
  LstmCell<V> of{
      formulas::Sigmoid::f(i), formulas::Sigmoid::f(f), formulas::Tanh::f(g), formulas::Sigmoid::f(o), {}, {}};
  of.c = fma(of.f, before, of.i * of.g);
  of.h = of.o * formulas::Tanh::f(of.c);
  return of;
}

template <class V>
struct LstmCellGradient {
  V i, f, g, o, c;
};

// Takes dh, the later step's f * dc, the gates, c[t] and c[t-1].
template <class V>
HWY_INLINE LstmCellGradient<V> lstm_cell_gradient(V dh, V later, V i, V f, V g, V o, V c, V before) {
  const V s = formulas::Tanh::f(c), dc = fma(dh * o, fma(neg(s), s, V::set(1)), later);
  return {formulas::Sigmoid::gradient(dc * g, i), formulas::Sigmoid::gradient(dc * before, f),
          formulas::Tanh::gradient(dc * i, g), formulas::Sigmoid::gradient(dh * s, o), f * dc};
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
