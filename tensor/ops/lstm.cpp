#include "tensor/ops/lstm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/lstm.cpp"
#include <hwy/foreach_target.h>

#include "tensor/isa.h"
#include "tensor/op_check.h"
#include "tensor/ops/repeated_product.h"
#include "tensor/trace.h"
#include "tensor/ops/lstm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

void lstm_cell_rows(const LstmCellArgs& a, int64_t begin, int64_t end) {
  visit_element(a.gates.dtype, [&](auto zero) {
    using T = decltype(zero);
    using V = Vec<T>;
    const int64_t n = a.hidden;
    for (int64_t row = begin; row < end; ++row) {
      const T *gates = a.gates.as<T>() + row * 4 * n, *before = a.before.data ? a.before.as<T>() + row * n : nullptr;
      const T* recurrent = a.recurrent.as<T>() + (before ? row * 4 * n : 0);
      T *active = a.active.as<T>() + row * 4 * n, *cell = a.cell.as<T>() + row * n, *y = a.output.as<T>() + row * n;
      for (int64_t j = 0; j < n; j += V::kLanes) {
        const auto sum = [&](int64_t gate) {
          return V::load(gates + gate * n + j, n - j) + V::load(recurrent + gate * n + j, n - j);
        };
        const LstmCell<V> of =
            lstm_cell_of(sum(0), sum(1), sum(2), sum(3), before ? V::load(before + j, n - j) : V::set(0));
        of.i.store(active + j, n - j);
        of.f.store(active + n + j, n - j);
        of.g.store(active + 2 * n + j, n - j);
        of.o.store(active + 3 * n + j, n - j);
        of.c.store(cell + j, n - j);
        of.h.store(y + j, n - j);
      }
    }
  });
}

void lstm_cell_backward_rows(const LstmCellBackwardArgs& a, int64_t begin, int64_t end) {
  visit_element(a.dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    using V = Vec<T>;
    const int64_t n = a.hidden;
    for (int64_t row = begin; row < end; ++row) {
      const auto of_row = [&](const In& x) { return x.data ? x.as<T>() + row * n : nullptr; };
      const T *dy = of_row(a.dy), *recurrent = of_row(a.recurrent), *cell = of_row(a.cell), *before = of_row(a.before);
      const T* active = a.active.as<T>() + row * 4 * n;
      T *dgates = a.dgates.as<T>() + row * 4 * n, *dcell = a.dcell.as<T>() + row * n;
      for (int64_t j = 0; j < n; j += V::kLanes) {
        const auto gate = [&](int64_t k) { return V::load(active + k * n + j, n - j); };
        V dh = V::load(dy + j, n - j);
        if (recurrent) dh = dh + V::load(recurrent + j, n - j);
        const LstmCellGradient<V> of =
            lstm_cell_gradient(dh, V::load(dcell + j, n - j), gate(0), gate(1), gate(2), gate(3),
                               V::load(cell + j, n - j), before ? V::load(before + j, n - j) : V::set(0));
        of.i.store(dgates + j, n - j);
        of.f.store(dgates + n + j, n - j);
        of.g.store(dgates + 2 * n + j, n - j);
        of.o.store(dgates + 3 * n + j, n - j);
        of.c.store(dcell + j, n - j);
      }
    }
  });
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(lstm_cell_rows);
HWY_EXPORT(lstm_cell_backward_rows);

void lstm_cell(CpuStream& stream, const LstmCellArgs& a) {
  stream.parallel_for(a.rows, 1024 / (a.hidden + 1) + 1, [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(lstm_cell_rows, a.gates.dtype)(a, b, e);
  });
}

void lstm_cell_backward(CpuStream& stream, const LstmCellBackwardArgs& a) {
  stream.parallel_for(a.rows, 1024 / (a.hidden + 1) + 1, [&](int64_t b, int64_t e) {
    ELINVAR_KERNEL(lstm_cell_backward_rows, a.dy.dtype)(a, b, e);
  });
}

namespace {

LstmResult lstm_of(const Tensor& given, const Tensor& weight, const Tensor& bias) {
  check_float("lstm", given);
  check(given.ndim() == 3 && given.dim(0) > 0 && given.dim(2) > 0 && given.dim(2) % 4 == 0,
        "[lstm] gates (T, N, 4 H), T > 0, expected, shape is {}", to_string(given.shape()));
  const Tensor gates = given.to_contiguous();
  const int64_t time = gates.dim(0), rows = gates.dim(1), hidden = gates.dim(2) / 4;
  const Tensor across = operand("lstm", "the weight", weight, {4 * hidden, hidden}, gates).transpose(0, 1),
               added = operand("lstm", "the bias", bias, {4 * hidden}, gates);
  const RepeatedProduct product(across.to_contiguous(), rows);
  const auto sequence = [&](int64_t width) {
    return Tensor::empty({time, rows, width}, gates.dtype(), gates.device());
  };
  const LstmResult all{sequence(hidden), sequence(4 * hidden), sequence(hidden)};
  Tensor recurrent = added;
  for (int64_t t = 0; t < time; ++t) {
    if (t > 0) recurrent = product(all.output.select(0, t - 1), added);
    const Tensor step = gates.select(0, t), before = t > 0 ? all.cell.select(0, t - 1) : Tensor();
    Tensor active = all.active.select(0, t), cell = all.cell.select(0, t), output = all.output.select(0, t);
    on(gates.device(), [&](auto& stream) {
      lstm_cell(stream, LstmCellArgs{in(step), in(recurrent), t > 0 ? in(before) : In{}, out(active), out(cell),
                                     out(output), rows, hidden});
    });
  }
  return all;
}

Tensor lstm_backward_of(const Tensor& given, const Tensor& weight, const Tensor& active, const Tensor& cell) {
  check_float("lstm_backward", given);
  check(given.ndim() == 3 && given.dim(0) > 0, "[lstm_backward] (T, N, H), T > 0, expected, shape is {}",
        to_string(given.shape()));
  const Tensor dy = given.to_contiguous();
  const int64_t time = dy.dim(0), rows = dy.dim(1), hidden = dy.dim(2);
  const Tensor w = operand("lstm_backward", "the weight", weight, {4 * hidden, hidden}, dy),
               gates = operand("lstm_backward", "the gates", active, {time, rows, 4 * hidden}, dy),
               cells = operand("lstm_backward", "the cells", cell, {time, rows, hidden}, dy);
  const RepeatedProduct product(w, rows);
  const Tensor all = Tensor::empty({time, rows, 4 * hidden}, dy.dtype(), dy.device());
  Tensor dcell = Tensor::zeros({rows, hidden}, dy.dtype(), dy.device());
  for (int64_t t = time - 1; t >= 0; --t) {
    const Tensor recurrent = t + 1 < time ? product(all.select(0, t + 1)) : Tensor(), step = dy.select(0, t),
                 of_gates = gates.select(0, t), of_cell = cells.select(0, t),
                 before = t > 0 ? cells.select(0, t - 1) : Tensor();
    Tensor dgates = all.select(0, t);
    on(dy.device(), [&](auto& stream) {
      lstm_cell_backward(
          stream, LstmCellBackwardArgs{in(step), recurrent.defined() ? in(recurrent) : In{}, in(of_gates), in(of_cell),
                                       t > 0 ? in(before) : In{}, out(dgates), out(dcell), rows, hidden});
    });
  }
  return all;
}

double step_flop(const Shape& shape, int64_t hidden) {  // of the products of all steps but one
  return 8.0 * static_cast<double>((shape[0] - 1) * shape[1] * hidden) * static_cast<double>(hidden);
}
double forward_flop(const Tensor& gates, const Tensor& weight, const Tensor&) {
  return step_flop(gates.shape(), weight.dim(1));
}
double backward_flop(const Tensor& dy, const Tensor& weight, const Tensor&, const Tensor&) {
  return step_flop(dy.shape(), weight.dim(1));
}

const Op kLstm("lstm(gates, weight, bias)", lstm_of, forward_flop);
const Op kLstmBackward("lstm_backward(dy, weight, active, cell) -> dgates", lstm_backward_of, backward_flop);

}  // namespace

LstmResult lstm(const Tensor& gates, const Tensor& weight, const Tensor& bias) { return kLstm(gates, weight, bias); }

Tensor lstm_backward(const Tensor& dy, const Tensor& weight, const Tensor& active, const Tensor& cell) {
  return kLstmBackward(dy, weight, active, cell);
}

}  // namespace elinvar
#endif
