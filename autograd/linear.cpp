#include "autograd/linear.h"

#include "autograd/precision.h"
#include "tensor/base/check.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/reduce.h"

namespace elinvar {

Var matmul(const Var& a, const Var& b) {
  const Precision precision = product_precision();
  const Tensor x = factor("matmul", a.value(), precision), y = factor("matmul", b.value(), precision);
  return record(matmul(x, y, {}, precision, activation_type(DType::f32, precision)), {a, b},
                [x, y, precision, da = a.requires_grad(), db = b.requires_grad(), ta = a.dtype(),
                 tb = b.dtype()](const Tensor& g) -> std::vector<Tensor> {
                  const Tensor dy = factor("matmul", g, precision);
                  return {da ? sum_to(matmul(dy, y.transpose(-2, -1), {}, precision, ta), x.shape()) : Tensor{},
                          db ? sum_to(matmul(x.transpose(-2, -1), dy, {}, precision, tb), y.shape()) : Tensor{}};
                });
}

Var linear(const Var& x, const Var& weight, const Var& bias) {
  check(weight.ndim() == 2, "[linear] weight (out, in) expected, shape is {}", to_string(weight.shape()));
  check(x.ndim() >= 1 && x.dim(-1) == weight.dim(1),
        "[linear] the last extent of the input {} must be that of weight {}", to_string(x.shape()),
        to_string(weight.shape()));
  const int64_t in = weight.dim(1), out = weight.dim(0);
  Shape shape = x.shape();
  shape[shape.ndim() - 1] = out;
  const Precision precision = product_precision();
  const Tensor rows = factor("linear", x.value().reshape({-1, in}), precision),
               w = factor("linear", weight.value(), precision);
  Tensor y = matmul(rows, w.transpose(0, 1), bias.defined() ? bias.value() : Tensor{}, precision,
                    activation_type(DType::f32, precision))
                 .reshape(shape);
  std::vector<Var> inputs{x, weight};
  if (bias.defined()) inputs.push_back(bias);
  return record(std::move(y), inputs, [x, weight, bias, rows, w, out, precision](const Tensor& gradient) {
    const Tensor dy = gradient.reshape({-1, out}), dy_factor = factor("linear", dy, precision);
    std::vector<Tensor> grads(bias.defined() ? 3 : 2);
    if (x.requires_grad()) grads[0] = matmul(dy_factor, w, {}, precision, x.dtype()).reshape(x.shape());
    if (weight.requires_grad()) grads[1] = matmul(dy_factor.transpose(0, 1), rows, {}, precision);
    if (bias.requires_grad()) grads[2] = sum_to(dy, {out});
    return grads;
  });
}

}  // namespace elinvar
