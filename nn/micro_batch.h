#pragma once
// The leaf gradient: what one virtual rank contributes to a step. A pure function of the parameters, its batch, and
// its random numbers (NUMERICS.md, rule 18); it leaves the network as it was.
#include <functional>
#include <span>
#include <vector>

#include "autograd/loss.h"
#include "nn/network.h"
#include "tensor/transfer.h"

namespace elinvar {

using LossOptions = CrossEntropyOptions;

struct MicroBatchResult {
  double loss_sum = 0;  // sum of the targets' cross entropies (a float32 value)
  int64_t count = 0;    // targets that count, that is, that are not ignored
  int64_t correct = 0;  // of them, those whose class has the largest logit (the lowest class at ties); of
                        // mixtures, the first class
  std::vector<Tensor> gradients = {};      // of the *sum*, in the order of network.parameters.list; zeros if untouched
  std::vector<Statistic> statistics = {};  // of the batch norms, in the order in which they were met
  std::vector<Tensor> batch_statistics = {};  // two of each, for the running ones (running_statistics.h)
  Mark statistics_since = {};  // in MicroBatchProgress::forward: the place in a GPU's work by which they are there
};

// What a leaf tells while it is being computed.
struct MicroBatchProgress {
  // After the forward pass, which a GPU may still be at: the count is known, and so are the statistics.
  std::function<void(const MicroBatchResult&)> forward = {};
  // While the backward pass runs, mostly from the last parameter to the first, then those of untouched parameters from
  // the first to the last: a gradient of the result, by its place there. It is handed over, so that the result has
  // none. With a mark it is there once a GPU's work has reached that, and to be read before the next leaf alone.
  std::function<void(size_t parameter, Tensor gradient, const Mark& since)> gradient = {};
};

// Trains on one batch: images (N, H, W, C) with labels (N) or mixtures of two, or tokens (B, T) with the next tokens
// (B, T). With `recompute`, blocks of the network keep nothing but their inputs between the passes: less memory, a
// third more time, the same bits.
MicroBatchResult micro_batch_gradient(Network& network, const Tensor& input, const Targets& target,
                                      const LossOptions& options, const Rng& rng, bool recompute = false,
                                      const MicroBatchProgress& progress = {});

// Logits without gradients, statistics and dropout, and with running statistics in batch norms. Given several views of
// the same samples, an image and its mirror image say, the mean of theirs: added from left to right, then divided by
// their number.
Tensor predict(const Network& network, std::span<const Tensor> views);

// The numbers of a leaf, but for gradients and statistics, where the network says these logits.
MicroBatchResult evaluate(const Tensor& logits, const Tensor& target, const LossOptions& options = {});
inline MicroBatchResult evaluate(const Network& network, std::span<const Tensor> views, const Tensor& target,
                                 const LossOptions& options = {}) {
  return evaluate(predict(network, views), target, options);
}
inline MicroBatchResult evaluate(const Network& network, const Tensor& input, const Tensor& target,
                                 const LossOptions& options = {}) {
  return evaluate(network, std::span(&input, 1), target, options);
}

}  // namespace elinvar
