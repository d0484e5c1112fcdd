#pragma once
// The forward and the backward pass of a gradient, and how their results reach the caller. Shared by gradients that run
// directly (micro_batch.h) and those that are replayed (micro_batch_graphs.h).
#include <functional>
#include <optional>

#include "nn/micro_batch.h"
#include "tensor/transfer.h"

namespace elinvar {

struct MicroBatchTask {
  Network& network;
  Tensor input;
  Targets target;
  LossOptions options;
  Rng rng;
  Recompute recompute;
  ShardGroup* group;
  Residence* residence = nullptr;
};

// The results of the forward pass.
struct ForwardPass {
  Tensor loss, top1;  // one element for each target; top1: ops/top1_correct.h
  std::vector<Statistic> statistics;
  std::vector<Tensor> batch_statistics;
  std::vector<SegmentRun> segments = {};
};

// Calls the ops of both passes. Calls `forward` between the two, and `gradient` for each gradient: with `early`, as
// soon as the backward pass has called the ops that compute it, otherwise after the pass.
void run_passes(const MicroBatchTask& task, bool early, const std::function<void(ForwardPass)>& forward,
                const std::function<void(size_t parameter, Tensor gradient)>& gradient);

// Delivers results from a GPU's memory to MicroBatchProgress and MicroBatchResult.
class GradientDelivery {
 public:
  GradientDelivery(const MicroBatchTask& task, const MicroBatchProgress& progress) : task_(task), progress_(progress) {}
  void forward(ForwardPass pass, const Mark& since = {});
  void gradient(size_t parameter, Tensor gradient, const Mark& since = {});
  MicroBatchResult finish();  // waits for the numbers

 private:
  const MicroBatchTask& task_;
  const MicroBatchProgress& progress_;
  MicroBatchResult result_;
  Download loss_, top1_;
};

// Returns the gradient of a parameter, or zeros if it is undefined. It shares elements with no other tensor, because
// gradients are added up in place.
Tensor gradient_of_its_own(Tensor gradient, const Tensor& parameter);

// Returns how many targets are not `ignored`.
int64_t count_of(const Tensor& targets, int64_t ignored);
// Returns how many are correct of a result of top1_correct(), which must be on the CPU.
int64_t correct_of(const Tensor& top1);

}  // namespace elinvar
