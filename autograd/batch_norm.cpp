#include "autograd/norm.h"
#include "autograd/pointwise.h"
#include "autograd/precision.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

// The forward pass with given factors; `batch` says whether they were computed from x, so that dx flows through them.
Var normalize(const Var& x, const Var& gamma, const Var& beta, const BatchNormFactors& factors,
              const BatchNormOptions& options, bool batch) {
  const Var residual = options.residual.defined() && options.residual.dtype() != x.dtype()
                           ? cast(options.residual, x.dtype())
                           : options.residual;
  Tensor input = x.value().to_contiguous();
  // With exact numerics a convolution keeps its input in two bytes an element, or not at all, so nothing else should
  // keep it in four. A result that is computed from x alone is deferred, and the convolution reads x. With a residual
  // the mask of the relu is kept in bits. An x that is computed again is not kept.
  const bool exact = product_precision() == Precision::exact && x.dtype() == DType::f32, again = exact && x.origin(),
             deferred = exact && options.relu && !residual.defined() && !again;
  Tensor y, kept;
  if (exact && options.relu && residual.defined()) {
    BatchNormMasked result = batch_norm_apply_masked(input, factors, residual.value());
    y = std::move(result.y);
    kept = std::move(result.mask);
  } else if (!deferred) {
    y = batch_norm_apply(input, factors, residual.defined() ? residual.value() : Tensor(), options.relu);
  }
  const ReluMask mask = !options.relu         ? ReluMask::none
                        : !residual.defined() ? ReluMask::from_x
                        : exact               ? ReluMask::from_bits
                                              : ReluMask::from_y;
  if (mask == ReluMask::from_y) kept = y;
  const bool need_x = x.requires_grad(), need_gamma = gamma.requires_grad(), need_beta = beta.requires_grad(),
             need_residual = residual.requires_grad();
  std::vector<Var> inputs{x, gamma, beta};
  if (residual.defined()) inputs.push_back(residual);
  const Shape shape = input.shape();
  Origin origin;
  if (deferred)
    origin = {.compute = [input, factors] { return batch_norm_apply(input, factors, Tensor(), /*relu=*/true); },
              .x = input,
              .a = factors.a,
              .b = factors.b,
              .relu = true};
  std::function<Tensor()> input_again;
  if (again) {
    input_again = x.origin()->compute;
    input = {};
  }
  const auto gradient = [=, with_residual = residual.defined(), kept_input = std::move(input)](Tensor g) {
    const Tensor values = input_again ? input_again() : kept_input;
    const bool masked_residual = need_residual && mask != ReluMask::none;
    ReluMask left = mask;
    BatchNormSums sums;
    if (masked_residual) {
      sums = batch_norm_sums(std::move(g), values, kept, factors, mask, true);
      g = std::move(sums.g);
      left = ReluMask::none;
    } else if (need_gamma || need_beta || (need_x && batch)) {
      sums = batch_norm_sums(g, values, kept, factors, mask, false);
    }
    std::vector<Tensor> grads(with_residual ? 4 : 3);
    if (need_residual) grads[3] = g;
    if (need_x) grads[0] = batch_norm_gradient(std::move(g), values, kept, factors, batch ? &sums : nullptr, left);
    if (need_gamma) grads[1] = sums.sum_gx;
    if (need_beta) grads[2] = sums.sum_g;
    return grads;
  };
  if (deferred) return record_deferred(shape, x.dtype(), std::move(origin), std::move(inputs), gradient);
  return record(std::move(y), std::move(inputs), gradient);
}

}  // namespace

BatchNormResult batch_norm(const Var& x, const Var& gamma, const Var& beta, const BatchNormOptions& options) {
  NormalizedBatch of = batch_norm_of_batch(x.value(), gamma.value(), beta.value(), options.eps);
  Var y = normalize(x, gamma, beta, of.factors, options, true);
  return {std::move(y), std::move(of.statistics)};
}

Var batch_norm_eval(const Var& x, const Var& gamma, const Var& beta, const Tensor& mean, const Tensor& var,
                    const BatchNormOptions& options) {
  return normalize(x, gamma, beta, batch_norm_factors(mean, var, gamma.value(), beta.value(), options.eps), options,
                   false);
}

}  // namespace elinvar
