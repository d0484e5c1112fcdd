#pragma once
// Losses. They are *sums* over samples, not means: the leaf gradient of a virtual rank belongs to the sum over
// its samples, and the global batch's count divides once, at the root of the reduction tree.
#include "autograd/var.h"

namespace elinvar {

struct CrossEntropyOptions {
  double label_smoothing = 0.0;
  int64_t ignore_index = -100;  // targets with this value count for nothing
};
// logits (.., classes), targets (..) int32 or int64 -> sum of -log softmax[target] over targets not ignored, ().
Var cross_entropy(const Var& logits, const Tensor& targets, const CrossEntropyOptions& options = {});

// Sum of squared differences, ().
Var mse_loss(const Var& x, const Var& target);

}  // namespace elinvar
