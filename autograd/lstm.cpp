#include "autograd/lstm.h"

#include "autograd/precision.h"
#include "tensor/ops/lstm.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/reduce.h"

namespace elinvar {

Var lstm(const Var& gates, const Var& weight, const Var& bias) {
  const Var wide = widened(gates);
  LstmResult made = lstm(wide.value(), weight.value(), bias.value());
  return record(made.output, {wide, weight, bias},
                [weight, made, dw = weight.requires_grad(), db = bias.requires_grad()](const Tensor& dy) {
                  const Tensor da = lstm_backward(dy, weight.value(), made.active, made.cell);
                  const int64_t steps = da.dim(0) - 1, gates_of_row = da.dim(2), hidden = gates_of_row / 4;
                  std::vector<Tensor> grads{da, {}, {}};
                  // The state before step 0 is zero.
                  if (dw)
                    grads[1] = matmul(da.slice(0, 1, steps + 1).reshape({-1, gates_of_row}).transpose(0, 1),
                                      made.output.slice(0, 0, steps).reshape({-1, hidden}));
                  if (db) grads[2] = sum_to(da.reshape({-1, gates_of_row}), {gates_of_row});
                  return grads;
                });
}

}  // namespace elinvar
