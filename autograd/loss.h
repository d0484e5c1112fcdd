#pragma once
// Losses. They are *sums* over samples, not means, so that the gradients of virtual ranks can be added; the sum is
// divided once by the count of the global batch, at the root of the reduction tree.
#include <utility>
#include <vector>

#include "autograd/shards.h"
#include "autograd/var.h"

namespace elinvar {

struct CrossEntropyOptions {
  double label_smoothing = 0.0;
  int64_t ignore_index = -100;  // targets with this value are ignored
};
// logits (.., classes), targets (..) int32 or int64 -> sum of -log softmax[target] over targets not ignored, ().
Var cross_entropy(const Var& logits, const Tensor& targets, const CrossEntropyOptions& options = {});

// The targets of a micro-batch: of logits classes or, if images were mixed (data/mixing.h), mixtures of two classes.
struct Targets {
  Tensor own;    // of logits: (..) int32 or int64
  Tensor other;  // like own; undefined without mixtures
  Tensor share;  // (..) float32 in [0, 1]: the probability of `own`; `other` has the rest

  Targets(Tensor classes) : own(std::move(classes)) {}  // NOLINT(google-explicit-constructor): most targets are these
  Targets(Tensor first, Tensor second, Tensor of_first)
      : own(std::move(first)), other(std::move(second)), share(std::move(of_first)) {}
};
// The loss is linear in the target's distribution, so mixtures add to the loss for `own` the sum over rows of
// c * (logits[own] - logits[other]), with c = (1 - label_smoothing) * (1 - share) in float64, rounded once. This sum is
// computed over all elements of the product of the logits and a matrix with c at own and -c at other. Logits must be
// float32, or bfloat16 on a GPU. A row whose own or other target is ignored is not a mixture.
Var cross_entropy(const Var& logits, const Targets& targets, const CrossEntropyOptions& options = {});

// Logits (.., classes) in shards of the classes (NUMERICS.md, rules 25 and 26).
struct ShardedLogits {
  std::vector<Var> parts;  // of the shards that are computed here
  Shards shards = {};
  int64_t classes = 0;
  Var further = {};  // (.., k) outputs that are no logits of classes, for tasks that know them; mostly undefined
};
Var joined(const ShardedLogits& logits);  // (.., classes), or (.., classes + k)

// The loss of sharded logits, which are not joined for it, and a Top1 for each target (tensor/ops/top1_correct.h).
// Mixtures need a single shard.
struct LossAndTop1 {
  Var loss;
  Tensor top1;
};
LossAndTop1 cross_entropy(const ShardedLogits& logits, const Targets& targets, const CrossEntropyOptions& options = {});

// Sum of squared differences, ().
Var mse_loss(const Var& x, const Var& target);

}  // namespace elinvar
