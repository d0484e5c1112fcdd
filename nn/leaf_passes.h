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
  Tensor loss, hits;  // of each target (ops/hits.h)
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
  Download loss_, hits_;
};

// Of the targets, how many count.
int64_t count_of(const Tensor& targets, int64_t ignored);
// Of hits (ops/hits.h), on the CPU, how many are right.
int64_t right_of(const Tensor& hits);

}  // namespace elinvar
