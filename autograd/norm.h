#pragma once
// Normalisations (NUMERICS.md, rule 15).
#include "autograd/var.h"

namespace elinvar {

// Over the last dimension of x; gamma and beta (C) may be undefined.
Var layer_norm(const Var& x, const Var& gamma, const Var& beta, double eps = 1e-5);
Var rms_norm(const Var& x, const Var& gamma, double eps = 1e-5);
// x (N, .., C): per sample over all positions and the C / groups channels of a group.
Var group_norm(const Var& x, const Var& gamma, const Var& beta, int64_t groups, double eps = 1e-5);

// Batch statistics of each channel (last dimension) of x (.., C); var is biased (divided by count).
struct BatchStatistics {
  Tensor mean, var;  // (C)
  int64_t count = 0; // elements a channel
};
struct BatchNormResult {
  Var y;
  BatchStatistics statistics;
};
BatchNormResult batch_norm(const Var& x, const Var& gamma, const Var& beta, double eps = 1e-5);
// With given statistics (evaluation).
Var batch_norm_eval(const Var& x, const Var& gamma, const Var& beta, const Tensor& mean, const Tensor& var, double eps = 1e-5);

}  // namespace elinvar
