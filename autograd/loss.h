#pragma once
// Losses. They are *sums* over samples, not means: the leaf gradient of a virtual rank belongs to the sum over
// its samples, and the global batch's count divides once, at the root of the reduction tree.
#include <utility>

#include "autograd/var.h"

namespace elinvar {

struct CrossEntropyOptions {
  double label_smoothing = 0.0;
  int64_t ignore_index = -100;  // targets with this value count for nothing
};
// logits (.., classes), targets (..) int32 or int64 -> sum of -log softmax[target] over targets not ignored, ().
Var cross_entropy(const Var& logits, const Tensor& targets, const CrossEntropyOptions& options = {});

// What logits are to be: classes or, where images were mixed (data/mixing.h), mixtures of two.
struct Targets {
  Tensor own;    // (..) int32 or int64
  Tensor other;  // like own; undefined: no mixtures
  Tensor share;  // (..) float32 in [0, 1]: what `own` has of the target's probability; `other` has the rest

  Targets(Tensor classes) : own(std::move(classes)) {}  // NOLINT(google-explicit-constructor): most targets are these
  Targets(Tensor first, Tensor second, Tensor of_first)
      : own(std::move(first)), other(std::move(second)), share(std::move(of_first)) {}
};
// The loss is linear in the target's distribution, so a mixture adds to the sum for `own` that of
// c * (logits[own] - logits[other]) over its rows, with c = (1 - label_smoothing) * (1 - share), two float64 operations
// rounded once, as the sum of all elements of the product of the logits and a matrix that has c at own and -c at other.
// Float32 only, or a GPU's bfloat16; a row whose own or other target is ignored is no mixture.
Var cross_entropy(const Var& logits, const Targets& targets, const CrossEntropyOptions& options = {});

// Sum of squared differences, ().
Var mse_loss(const Var& x, const Var& target);

}  // namespace elinvar
