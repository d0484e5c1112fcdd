#pragma once
// Normalisations (NUMERICS.md, rule 15).
#include "autograd/var.h"
#include "tensor/ops/batch_norm.h"

namespace elinvar {

// Normalise over the last dimension of x; gamma and beta (C) may be undefined.
Var layer_norm(const Var& x, const Var& gamma, const Var& beta, double eps = 1e-5);
Var rms_norm(const Var& x, const Var& gamma, double eps = 1e-5);
// Returns x + addend, which must have one shape, and its norm, in one pass over memory, with the bits of separate
// functions.
struct SumAndNorm {
  Var sum, norm;
};
SumAndNorm add_layer_norm(const Var& x, const Var& addend, const Var& gamma, const Var& beta, double eps = 1e-5);
SumAndNorm add_rms_norm(const Var& x, const Var& addend, const Var& gamma, double eps = 1e-5);
// x (N, .., C); normalises over all positions and the C / groups channels of a group, per sample.
Var group_norm(const Var& x, const Var& gamma, const Var& beta, int64_t groups, double eps = 1e-5);

// Batch norm of each channel (last dimension) of x (.., C), and optional functions after it in the same pass over
// memory:
//   y = batch_norm(x);  y = y + residual, if it is defined (x's shape);  y = relu(y), if requested
// The bits are those of the separate functions. gamma and beta are (C).
struct BatchNormOptions {
  double eps = 1e-5;
  bool relu = false;
  Var residual = {};
};
struct BatchNormResult {
  Var y;
  BatchStatistics statistics;
};
BatchNormResult batch_norm(const Var& x, const Var& gamma, const Var& beta, const BatchNormOptions& options = {});
// Batch norm in evaluation, with the given statistics (C).
Var batch_norm_eval(const Var& x, const Var& gamma, const Var& beta, const Tensor& mean, const Tensor& var,
                    const BatchNormOptions& options = {});

}  // namespace elinvar
