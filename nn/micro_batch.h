#pragma once
// The gradient of one virtual rank's batch, its contribution to a step (a leaf of the reduction tree). It is a pure
// function of the parameters, the batch and its random numbers (NUMERICS.md, rule 18), and does not change the network.
#include <functional>
#include <span>
#include <vector>

#include "autograd/loss.h"
#include "nn/network.h"
#include "nn/task.h"
#include "tensor/transfer.h"

namespace elinvar {

struct MicroBatchResult {
  double loss_sum = 0;  // sum of the targets' losses (a float32 value)
  int64_t count = 0;    // targets that count (Objective::count)
  int64_t correct = 0;  // of them, those that are predicted correctly: of classes, those with the largest logit (the
                        // lowest class at ties); of mixtures, the first class
  // Gradients of the *sum* of losses, in the order of network.parameters.list; zeros if untouched. Undefined for shards
  // of others.
  std::vector<Tensor> gradients = {};
  std::vector<Statistic> statistics = {};     // of the batch norms, in the order in which they ran
  std::vector<Tensor> batch_statistics = {};  // two of each, for the running ones (running_statistics.h)
  std::vector<SegmentRun> segments = {};      // none if the pass was replayed
  Mark statistics_since = {};  // in MicroBatchProgress::forward: the place in a GPU's work by which they are there
};

// Callbacks while the gradient is computed.
struct MicroBatchProgress {
  // Called after the forward pass, when the count and the statistics are known; a GPU may still run the pass.
  std::function<void(const MicroBatchResult&)> forward = {};
  // Called for each gradient while the backward pass runs, with its index in the result: mostly from the last parameter
  // to the first, then those of unused parameters from the first to the last (with a residence, segment by segment).
  // The callee owns the gradient; the result has none. With a mark, the gradient is ready once the GPU has reached the
  // mark, and valid until the next micro-batch.
  std::function<void(size_t parameter, Tensor gradient, const Mark& since)> gradient = {};
};

// Computes the gradient of one batch, for example images (N, H, W, C) with labels (N), or tokens (B, T) with the next
// tokens (B, T). With `recompute`, blocks of the network keep only their inputs between the passes, which takes
// less memory and a third more time, and gives the same bits. The processes of a `group` compute it together, each the
// gradients of its own virtual shards and of all that is not cut. With a `residence` of the network, which may be null,
// parameters are in memory only while they are used (nn/residence.h).
MicroBatchResult micro_batch_gradient(Network& network, const Inputs& input, const Targets& target, const Task& task,
                                      const Rng& rng, const Recompute& recompute = {},
                                      const MicroBatchProgress& progress = {}, ShardGroup& group = local_shards(),
                                      Residence* residence = nullptr);

// Returns the output, mostly logits, without gradients and dropout, with running statistics in batch norms. Given
// several views of the same samples, for example an image and its mirror image, returns the mean of their outputs,
// added from left to right and then divided by their number. The processes of a `group` compute them together.
// `residence` is as above. Adds what routers of experts do to `loads`, which may be null.
Tensor predict(const Network& network, std::span<const Inputs> views, ShardGroup& group = local_shards(),
               Residence* residence = nullptr, std::vector<ExpertLoad>* loads = nullptr);

// Scores outputs without gradients.
BatchScore evaluate(const Tensor& output, const Targets& targets, const Task& task = {});
inline BatchScore evaluate(const Network& network, std::span<const Inputs> views, const Targets& targets,
                           const Task& task = {}) {
  return evaluate(predict(network, views), targets, task);
}
inline BatchScore evaluate(const Network& network, const Inputs& input, const Targets& targets, const Task& task = {}) {
  return evaluate(network, std::span(&input, 1), targets, task);
}

}  // namespace elinvar
