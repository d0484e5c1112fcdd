#include "autograd/norm.h"
#include "autograd/pointwise.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

// The forward pass with given statistics; `batch` says whether they were computed from x, so that dx flows through
// them.
Var normalize(const Var& x, const Var& gamma, const Var& beta, const Tensor& mean, const Tensor& var,
              const BatchNormOptions& options, bool batch) {
  const BatchNormFactors factors = batch_norm_factors(mean, var, gamma.value(), beta.value(), options.eps);
  const Var residual = options.residual.defined() && options.residual.dtype() != x.dtype()
                           ? cast(options.residual, x.dtype())
                           : options.residual;
  const Tensor input = x.value().to_contiguous();
  const Tensor y = batch_norm_apply(input, factors, residual.defined() ? residual.value() : Tensor(), options.relu);

  const ReluMask mask = !options.relu ? ReluMask::none : residual.defined() ? ReluMask::from_y : ReluMask::from_x;
  const bool need_x = x.requires_grad(), need_gamma = gamma.requires_grad(), need_beta = beta.requires_grad(),
             need_residual = residual.requires_grad();
  std::vector<Var> inputs{x, gamma, beta};
  if (residual.defined()) inputs.push_back(residual);
  const Tensor kept = mask == ReluMask::from_y ? y : Tensor();
  return record(y, std::move(inputs), [=, with_residual = residual.defined()](Tensor g) {
    const bool masked_residual = need_residual && mask != ReluMask::none;
    ReluMask left = mask;
    BatchNormSums sums;
    if (masked_residual) {
      sums = batch_norm_sums(std::move(g), input, kept, factors, mask, true);
      g = std::move(sums.g);
      left = ReluMask::none;
    } else if (need_gamma || need_beta || (need_x && batch)) {
      sums = batch_norm_sums(g, input, kept, factors, mask, false);
    }
    std::vector<Tensor> grads(with_residual ? 4 : 3);
    if (need_residual) grads[3] = g;
    if (need_x) grads[0] = batch_norm_gradient(std::move(g), input, kept, factors, batch ? &sums : nullptr, left);
    if (need_gamma) grads[1] = sums.sum_gx;
    if (need_beta) grads[2] = sums.sum_g;
    return grads;
  });
}

}  // namespace

BatchNormResult batch_norm(const Var& x, const Var& gamma, const Var& beta, const BatchNormOptions& options) {
  BatchStatistics statistics = batch_statistics(x.value());
  Var y = normalize(x, gamma, beta, statistics.mean, statistics.var, options, true);
  return {std::move(y), std::move(statistics)};
}

Var batch_norm_eval(const Var& x, const Var& gamma, const Var& beta, const Tensor& mean, const Tensor& var,
                    const BatchNormOptions& options) {
  return normalize(x, gamma, beta, mean, var, options, false);
}

}  // namespace elinvar
