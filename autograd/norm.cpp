#include "autograd/norm.h"

#include "autograd/pointwise.h"
#include "autograd/precision.h"
#include "autograd/shape.h"
#include "tensor/base/check.h"
#include "tensor/ops/layer_norm.h"

namespace elinvar {
namespace {

const Tensor& value_or_none(const Var& v) {
  static const Tensor none;
  return v.defined() ? v.value() : none;
}

Var record_norm(RowNorm kind, RowNormResult result, const Var& x, const Var& gamma, const Var& beta, double eps) {
  const Tensor y = std::move(result.y);
  result.y = {};
  const auto again = [kind, rows = x.value(), g = value_or_none(gamma), b = value_or_none(beta), eps,
                      type = y.dtype()] {
    return kind == RowNorm::layer ? layer_norm(rows, g, b, eps, type).y : rms_norm(rows, g, eps, type).y;
  };
  std::vector<Var> inputs{x};
  if (gamma.defined()) inputs.push_back(gamma);
  if (beta.defined()) inputs.push_back(beta);
  return record(y, std::move(inputs),
                [=](Tensor dy) {
                  RowNormGradients g =
                      row_norm_backward(kind, std::move(dy), x.value(), value_or_none(gamma), result, x.requires_grad(),
                                        gamma.requires_grad() || beta.requires_grad(), gathered(x));
                  std::vector<Tensor> grads{std::move(g.dx)};
                  if (gamma.defined()) grads.push_back(std::move(g.dgamma));
                  if (beta.defined()) grads.push_back(std::move(g.dbeta));
                  return grads;
                },
                {.compute = again});
}

SumAndNorm norm_of_sum(RowNorm kind, const Var& x, const Var& addend, const Var& gamma, const Var& beta, double eps) {
  AddNormResult result = add_norm(kind, x.value(), addend.value(), value_or_none(gamma), value_or_none(beta), eps,
                                  activation_type(x.dtype()));
  const Var sum = record(std::move(result.sum), {x, addend}, [](const Tensor& dy) {
    return std::vector<Tensor>{dy, dy};
  });
  return {sum, record_norm(kind, std::move(result.norm), sum, gamma, beta, eps)};
}

}  // namespace

Var layer_norm(const Var& x, const Var& gamma, const Var& beta, double eps) {
  return record_norm(RowNorm::layer,
                     layer_norm(x.value(), value_or_none(gamma), value_or_none(beta), eps, activation_type(x.dtype())),
                     x, gamma, beta, eps);
}

Var rms_norm(const Var& x, const Var& gamma, double eps) {
  return record_norm(RowNorm::rms, rms_norm(x.value(), value_or_none(gamma), eps, activation_type(x.dtype())), x, gamma,
                     {}, eps);
}

SumAndNorm add_layer_norm(const Var& x, const Var& addend, const Var& gamma, const Var& beta, double eps) {
  return norm_of_sum(RowNorm::layer, x, addend, gamma, beta, eps);
}

SumAndNorm add_rms_norm(const Var& x, const Var& addend, const Var& gamma, double eps) {
  return norm_of_sum(RowNorm::rms, x, addend, gamma, {}, eps);
}

// The elements of a sample and a group, by position and then channel, are a row of layer norm. gamma and beta are
// applied afterwards, as y = h * gamma + beta with two roundings.
Var group_norm(const Var& x, const Var& gamma, const Var& beta, int64_t groups, double eps) {
  check(x.ndim() >= 2 && x.value().numel() > 0, "[group_norm] (N, .., C) with elements expected, shape is {}",
        to_string(x.shape()));
  const int64_t n = x.dim(0), channels = x.dim(-1);
  check(groups > 0 && channels % groups == 0, "[group_norm] {} channels do not form {} equal groups", channels, groups);
  for (const Var* p : {&gamma, &beta})
    check(!p->defined() || p->shape() == Shape{channels}, "[group_norm] gamma and beta must have shape ({},), got {}",
          channels, p->defined() ? to_string(p->shape()) : "");
  const int64_t positions = x.value().numel() / (n * channels), width = channels / groups;
  const Var by_group = permute(reshape(x, {n, positions, groups, width}), {0, 2, 1, 3});
  const Var h = layer_norm(reshape(by_group, {n, groups, positions * width}), {}, {}, eps);
  Var y = reshape(permute(reshape(h, {n, groups, positions, width}), {0, 2, 1, 3}), x.shape());
  if (gamma.defined()) y = mul(y, gamma);
  if (beta.defined()) y = add(y, beta);
  return y.dtype() == h.dtype() ? y : cast(y, h.dtype());  // gamma has made it float32
}

}  // namespace elinvar
