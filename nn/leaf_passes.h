#pragma once
// The two passes of a leaf, and how what they compute reaches whoever asked for it: what leaves that are computed as
// they are called (leaf.h) and leaves that are replayed (leaf_graphs.h) have in common.
#include <functional>
#include <optional>

#include "nn/leaf.h"
#include "tensor/transfer.h"

namespace elinvar {

struct LeafTask {
  Network& network;
  Tensor input;
  Targets target;
  LossOptions options;
  Rng rng;
  bool recompute;
};

// What the forward pass comes to.
struct LeafForward {
  Tensor loss, top1;  // one element for each target; top1: ops/top1_correct.h
  std::vector<Statistic> statistics;
  std::vector<Tensor> terms;
};

// Calls the ops of both passes. `forward` is told between them, `gradient` of each gradient: as soon as the backward
// pass has called what it is computed by if `early`, else after it.
void run_passes(const LeafTask& task, bool early, const std::function<void(LeafForward)>& forward,
                const std::function<void(size_t parameter, Tensor gradient)>& gradient);

// From a GPU's memory to LeafProgress and LeafResult.
class LeafDelivery {
 public:
  LeafDelivery(const LeafTask& task, const LeafProgress& progress) : task_(task), progress_(progress) {}
  void forward(LeafForward pass, const Mark& since = {});
  void gradient(size_t parameter, Tensor gradient, const Mark& since = {});
  LeafResult finish();  // waits for the numbers

 private:
  const LeafTask& task_;
  const LeafProgress& progress_;
  LeafResult result_;
  Download loss_, top1_;
};

// Returns how many targets are not `ignored`.
int64_t count_of(const Tensor& targets, int64_t ignored);
// Returns how many are correct of a result of top1_correct(), which must be on the CPU.
int64_t correct_of(const Tensor& top1);

}  // namespace elinvar
