#include "autograd/linear.h"

#include "autograd/precision.h"
#include "autograd/shape.h"
#include "tensor/base/check.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/reduce.h"

namespace elinvar {
namespace {

Tensor no_exponents(int64_t count, const Tensor& x) { return Tensor::zeros({count}, DType::i32, x.device()); }

Quantized rounded(const Var& weight) {
  return quantize_weight(weight.value().reshape({weight.dim(0), 1, weight.dim(1)}));
}

// The backward pass rounds the weight again: that takes less time than keeping it takes memory.
Var exact_linear(const Var& x, const Var& weight, const Var& bias, const Shape& shape) {
  const int64_t in = weight.dim(1), out = weight.dim(0);
  Quantized rows;
  Tensor y;
  {
    const Quantized w = rounded(weight);
    rows = quantize_rows(x.value().reshape({-1, 1, in}), w.channels);
    y = exact_matmul(rows, w, bias.defined() ? bias.value() : Tensor{}).reshape(shape);
  }
  std::vector<Var> inputs{x, weight};
  if (bias.defined()) inputs.push_back(bias);
  return record(std::move(y), inputs,
                [rows, weight, out, x_shape = x.shape(), dx = x.requires_grad(), has_bias = bias.defined(),
                 db = bias.requires_grad()](const Tensor& gradient) {
                  const Tensor dy = gradient.reshape({-1, 1, out});
                  std::vector<Tensor> grads(has_bias ? 3 : 2);
                  if (dx) {
                    const Quantized w = rounded(weight);
                    grads[0] = exact_matmul(quantize_rows(dy, w.rows), pair_rows(w)).reshape(x_shape);
                  }
                  if (weight.requires_grad())
                    grads[1] = exact_matmul(quantize_channels(dy, rows.rows), pair_rows(rows));
                  if (db) grads[2] = sum_to(dy, {out});
                  return grads;
                });
}

// Matrices without a batch: a (m, k) times b (k, n).
Var exact_product(const Var& a, const Var& b) {
  const int64_t m = a.dim(0), k = a.dim(1), n = b.dim(1);
  const Quantized x = quantize_rows(a.value().reshape({m, 1, k}), no_exponents(k, a.value())),
                  y = quantize_rows(b.value().transpose(0, 1).to_contiguous().reshape({n, 1, k}),
                                    no_exponents(k, b.value()));
  return record(exact_matmul(x, y), {a, b},
                [x, y, m, n, da = a.requires_grad(), db = b.requires_grad()](const Tensor& gradient) {
                  const Tensor dc = gradient.reshape({m, 1, n});
                  std::vector<Tensor> grads(2);
                  if (da) grads[0] = exact_matmul(quantize_rows(dc, y.rows), pair_rows(y));
                  if (db) grads[1] = exact_matmul(pair_rows(x), quantize_channels(dc, x.rows));
                  return grads;
                });
}

Var exact_products(const Var& a, const Var& b) {
  check(a.ndim() >= 2 && b.ndim() >= 2 && a.dim(-1) == b.dim(-2),
        "[matmul] matrices with equal inner extents expected, shapes are {} and {}", to_string(a.shape()),
        to_string(b.shape()));
  if (a.ndim() == 2 && b.ndim() == 2) return exact_product(a, b);
  const auto leading = [](Shape shape) {
    for (int i = 0; i < 2; ++i) shape.erase(shape.ndim() - 1);
    return shape;
  };
  const Shape batch = broadcast(leading(a.shape()), leading(b.shape()), "matmul");
  const auto matrices = [&](const Var& x, int64_t i) {
    Shape whole = batch;
    whole.push_back(x.dim(-2)), whole.push_back(x.dim(-1));
    const Var flat = reshape(expand(x, whole), {batch.numel(), x.dim(-2), x.dim(-1)});
    return reshape(slice(flat, 0, i, i + 1), {x.dim(-2), x.dim(-1)});
  };
  if (batch.numel() == 0) {
    const PrecisionScope no_products(Precision::portable);
    return matmul(a, b);
  }
  std::vector<Var> products;
  for (int64_t i = 0; i < batch.numel(); ++i)
    products.push_back(reshape(exact_product(matrices(a, i), matrices(b, i)), {1, a.dim(-2), b.dim(-1)}));
  Shape shape = batch;
  shape.push_back(a.dim(-2)), shape.push_back(b.dim(-1));
  return reshape(concat(std::move(products), 0), shape);
}

}  // namespace

Var matmul(const Var& a, const Var& b) {
  const Precision precision = product_precision();
  if (precision == Precision::exact) return exact_products(a, b);
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
  if (precision == Precision::exact) return exact_linear(x, weight, bias, shape);
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
