#include "tensor/cuda/kernel.h"

#include "tensor/ops/lstm-inl.h"
#include "tensor/ops/lstm.h"

namespace elinvar::HWY_NAMESPACE {
namespace {

using V = Vec<float>;

// One thread for each hidden channel of a row.
__global__ void lstm_cells(LstmCellArgs a) {
  const int64_t n = a.hidden;
  for (int64_t at = thread_of_grid(); at < a.rows * n; at += grid_stride()) {
    const int64_t first = at / n * 4 * n + at % n, shared = a.before.data ? first : at % n;
    const auto sum = [&](int64_t gate) {
      return V{a.gates.as<float>()[first + gate * n]} + V{a.recurrent.as<float>()[shared + gate * n]};
    };
    const V before{a.before.data ? a.before.as<float>()[at] : 0.0f};
    const LstmCell<V> of = lstm_cell_of(sum(0), sum(1), sum(2), sum(3), before);
    float* active = a.active.as<float>() + first;
    active[0] = of.i.v;
    active[n] = of.f.v;
    active[2 * n] = of.g.v;
    active[3 * n] = of.o.v;
    a.cell.as<float>()[at] = of.c.v;
    a.output.as<float>()[at] = of.h.v;
  }
}

__global__ void lstm_cell_gradients(LstmCellBackwardArgs a) {
  const int64_t n = a.hidden;
  for (int64_t at = thread_of_grid(); at < a.rows * n; at += grid_stride()) {
    const int64_t first = at / n * 4 * n + at % n;
    const auto gate = [&](int64_t k) { return V{a.active.as<float>()[first + k * n]}; };
    V dh{a.dy.as<float>()[at]};
    if (a.recurrent.data) dh = dh + V{a.recurrent.as<float>()[at]};
    const V before{a.before.data ? a.before.as<float>()[at] : 0.0f};
    const LstmCellGradient<V> of = lstm_cell_gradient(dh, V{a.dcell.as<float>()[at]}, gate(0), gate(1), gate(2),
                                                      gate(3), V{a.cell.as<float>()[at]}, before);
    float* dgates = a.dgates.as<float>() + first;
    dgates[0] = of.i.v;
    dgates[n] = of.f.v;
    dgates[2 * n] = of.g.v;
    dgates[3 * n] = of.o.v;
    a.dcell.as<float>()[at] = of.c.v;
  }
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void lstm_cell(Gpu& stream, const LstmCellArgs& a) {
  launch(stream, "lstm_cell", {.blocks = blocks_for(a.rows * a.hidden)}, HWY_NAMESPACE::lstm_cells, a);
}

template <>
void lstm_cell_backward(Gpu& stream, const LstmCellBackwardArgs& a) {
  launch(stream, "lstm_cell_backward", {.blocks = blocks_for(a.rows * a.hidden)}, HWY_NAMESPACE::lstm_cell_gradients,
         a);
}

}  // namespace elinvar
