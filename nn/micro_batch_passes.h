#pragma once
// The forward and the backward pass of a gradient, and how their results reach the caller. Shared by gradients that run
// directly (micro_batch.h) and those that are replayed (micro_batch_graphs.h).
#include <functional>
#include <optional>

#include "nn/micro_batch.h"
#include "tensor/transfer.h"

namespace elinvar {

struct MicroBatchWork {
  Network& network;
  Inputs input;
  Targets target;
  Task task;
  Rng rng;
  Recompute recompute;
  ShardGroup* group;
  Residence* residence = nullptr;
};

// The results of the forward pass.
struct ForwardPass {
  Tensor loss, top1;  // of LossAndTop1 (autograd/loss.h)
  std::vector<Statistic> statistics;
  std::vector<Tensor> batch_statistics;
  std::vector<SegmentRun> segments = {};
};

// Calls the ops of both passes. Calls `forward` between the two, and `gradient` for each gradient: with `early`, as
// soon as the backward pass has called the ops that compute it, otherwise after the pass.
void run_passes(const MicroBatchWork& work, bool early, const std::function<void(ForwardPass)>& forward,
                const std::function<void(size_t parameter, Tensor gradient)>& gradient);

// Delivers results from a GPU's memory to MicroBatchProgress and MicroBatchResult.
class GradientDelivery {
 public:
  GradientDelivery(const MicroBatchWork& work, const MicroBatchProgress& progress) : work_(work), progress_(progress) {}
  void forward(ForwardPass pass, const Mark& since = {});
  void gradient(size_t parameter, Tensor gradient, const Mark& since = {});
  MicroBatchResult finish();  // waits for the numbers

 private:
  const MicroBatchWork& work_;
  const MicroBatchProgress& progress_;
  MicroBatchResult result_;
  Download loss_, top1_;
};

// Returns the gradient of a parameter, or zeros if it is undefined. It shares elements with no other tensor, because
// gradients are added up in place.
Tensor gradient_of_its_own(Tensor gradient, const Var& parameter);

}  // namespace elinvar
