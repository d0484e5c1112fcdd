#pragma once
// Long short-term memory along a sequence, with the formulas of PyTorch's LSTM (S. Hochreiter and J. Schmidhuber, "Long
// Short-Term Memory", Neural Computation 9, 1997; forget gates: F. Gers et al., "Learning to Forget", Neural
// Computation 12, 2000). All tensors have the time first. A row of 4 H numbers has the gates i, f, g and o, H each.
// Every sign and function is one rounding (rule 5); products follow rules 8 and 9. For the steps t = 0 .. T-1:
//   a = gates[t] + (h[t-1] W^T + bias)          at t = 0: gates[0] + bias
//   i, f, o = sigmoid(a)    g = tanh(a)
//   c[t] = fma(f, c[t-1], i * g)                c[-1] = 0
//   h[t] = o * tanh(c[t])
// The gradient, for t = T-1 .. 0, where at t = T-1 the terms of t+1 are absent:
//   dh = dy[t] + da[t+1] W    s = tanh(c[t])    dc = fma(dh * o, fma(-s, s, 1), f[t+1] * dc[t+1])
//   da_o = (dh * s) * (o * (1 - o))             likewise da_i from dc * g, and da_f from dc * c[t-1]
//   da_g = (dc * i) * fma(-g, g, 1)
// dW is one product over all steps, and dbias one sum (autograd/lstm.cpp).
#include "tensor/fields.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

// One step.
struct LstmCellArgs {
  In gates, recurrent;       // (rows, 4 hidden)
  In before;                 // c[t-1] (rows, hidden); absent at t = 0, where all rows of `recurrent` are one, the bias
  Out active, cell, output;  // i, f, g and o (rows, 4 hidden); c[t] and h[t] (rows, hidden)
  int64_t rows, hidden;
};
void lstm_cell(CpuStream&, const LstmCellArgs&);
template <class B>
void lstm_cell(GpuStream<B>&, const LstmCellArgs&);

struct LstmCellBackwardArgs {
  In dy, recurrent;  // (rows, hidden): dy[t] and da[t+1] W, which is absent at t = T-1
  In active, cell;   // of the step
  In before;         // c[t-1]; absent at t = 0
  Out dgates;        // da[t] (rows, 4 hidden)
  Out dcell;         // (rows, hidden): f[t+1] * dc[t+1], which at t = T-1 is +0, is replaced by f * dc
  int64_t rows, hidden;
};
void lstm_cell_backward(CpuStream&, const LstmCellBackwardArgs&);
template <class B>
void lstm_cell_backward(GpuStream<B>&, const LstmCellBackwardArgs&);

struct LstmResult {
  Tensor output, active, cell;  // h (T, N, H), the gates (T, N, 4 H), c (T, N, H)
  ELINVAR_FIELDS(output, active, cell)
};
// gates (T, N, 4 H), T > 0; weight (4 H, H); bias (4 H); float32 or float64
LstmResult lstm(const Tensor& gates, const Tensor& weight, const Tensor& bias);
// dy (T, N, H) -> the gradient of `gates`
Tensor lstm_backward(const Tensor& dy, const Tensor& weight, const Tensor& active, const Tensor& cell);

}  // namespace elinvar
