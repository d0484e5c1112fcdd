#include "autograd/linear.h"

#include <algorithm>

#include "autograd/exact_factor.h"
#include "autograd/precision.h"
#include "autograd/shape.h"
#include "tensor/base/check.h"
#include "tensor/ops/concat.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/reduce.h"

namespace elinvar {
namespace {

Tensor no_exponents(int64_t count, const Tensor& x) { return Tensor::zeros({count}, DType::i32, x.device()); }

// Returns weights (out, in) that take the same input as one (out, 1, in).
Tensor joined(const std::vector<Var>& weights) {
  std::vector<Tensor> values;
  for (const Var& weight : weights) values.push_back(weight.value());
  const Tensor whole = values.size() == 1 ? values[0] : concat(values, 0);
  return whole.reshape({whole.dim(0), 1, whole.dim(1)});
}

// Returns the parts of a gradient of all weights, or of all biases, that are wanted.
void give_parts(const Tensor& whole, const std::vector<Var>& parameters, std::vector<Tensor>& grads, size_t first) {
  int64_t at = 0;
  for (size_t i = 0; i < parameters.size(); at += parameters[i++].dim(0))
    if (parameters[i].requires_grad()) grads[first + i] = whole.slice(0, at, at + parameters[i].dim(0));
}

bool any_requires_grad(const std::vector<Var>& variables) {
  return std::any_of(variables.begin(), variables.end(), [](const Var& v) { return v.requires_grad(); });
}

// Returns x times all weights, (.., sum of out). The backward pass rounds weights again: that takes less time than
// keeping them takes memory.
Var exact_linear(const Var& x, const std::vector<Var>& weights, const std::vector<Var>& biases, Shape shape) {
  const int64_t in = weights[0].dim(1);
  std::vector<Tensor> added;
  for (const Var& bias : biases) added.push_back(bias.value());
  Quantized w = quantize_weight(joined(weights)), rows;
  Shape samples = x.shape();
  samples.erase(samples.ndim() - 1);
  ExactFactor factor(x, {samples.numel(), 1, in}, w.channels, rows);
  const Tensor y = exact_matmul(rows, w, added.empty() ? Tensor{} : added.size() == 1 ? added[0] : concat(added, 0));
  w.q = rows.q = {};
  const int64_t out = y.dim(1);
  shape[shape.ndim() - 1] = out;
  std::vector<Var> inputs{x};
  inputs.insert(inputs.end(), weights.begin(), weights.end());
  inputs.insert(inputs.end(), biases.begin(), biases.end());
  return record(y.reshape(shape), inputs,
                [factor = std::move(factor), w_rows = w.rows, w_channels = w.channels, weights, biases, out,
                 x_shape = x.shape(), dx = x.requires_grad()](Tensor gradient) mutable {
                  std::vector<Tensor> grads(1 + weights.size() + biases.size());
                  Tensor dy = std::exchange(gradient, {}).reshape({-1, 1, out});
                  if (any_requires_grad(biases)) give_parts(sum_to(dy, {out}), biases, grads, 1 + weights.size());
                  const bool dw = any_requires_grad(weights);
                  QuantizedBoth of_dy = rounded_gradient(dy, dx, w_rows, dw, factor.rows());
                  dy = {};  // each tensor is freed when the products need it no more
                  if (dx) {
                    const Quantized columns = pair_weight_rows(joined(weights), 1, w_rows, w_channels);
                    grads[0] = exact_matmul(of_dy.rows, columns).reshape(x_shape);
                    of_dy.rows = {};
                  }
                  if (dw) give_parts(exact_matmul(of_dy.channels, factor.of_rows()), weights, grads, 1);
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
  if (precision == Precision::exact)
    return exact_linear(x, {weight}, bias.defined() ? std::vector<Var>{bias} : std::vector<Var>{}, shape);
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

std::vector<Var> linears(const Var& x, const std::vector<LinearOperands>& operands) {
  std::vector<Var> results, weights, biases;
  if (product_precision() != Precision::exact || operands.size() < 2) {
    for (const auto& [weight, bias] : operands) results.push_back(linear(x, weight, bias));
    return results;
  }
  std::vector<int64_t> extents;
  for (const auto& [weight, bias] : operands) {
    check(weight.ndim() == 2 && x.ndim() >= 1 && x.dim(-1) == weight.dim(1),
          "[linear] the last extent of the input {} must be that of weight {}", to_string(x.shape()),
          to_string(weight.shape()));
    check(bias.defined() == operands[0].bias.defined(),
          "[linear] either all functions of one input have a bias or none");
    weights.push_back(weight);
    if (bias.defined()) biases.push_back(bias);
    extents.push_back(weight.dim(0));
  }
  return split(exact_linear(x, weights, biases, x.shape()), extents, x.ndim() - 1);
}

}  // namespace elinvar
