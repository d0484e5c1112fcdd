#pragma once
// What a run computes, wherever its parts are done: leaves and updates, as functions of the state and the step. In a
// job the loop (tools/training/loop.h) shares them with other workers; repro does them all in one process.
#include <filesystem>
#include <string>
#include <vector>

#include "data/loader.h"
#include "elastic/session/session.h"
#include "nn/micro_batch_graphs.h"
#include "nn/network.h"
#include "tools/training/job.h"

namespace elinvar {

struct Update {
  double lr = 0, gradient_norm = 0;
};

class Training {
 public:
  // Opens the data and builds the network. Settings that do not fit them, or the device, are a UsageError.
  Training(const Config& config, Device device);

  Job job;
  Loader loader;
  int64_t steps = 0;  // of the whole run; with adaptive scaling, as many as there were with the configured batch
  ScalingOptions scaling;

  const Config& config() const { return job.config; }
  bool adaptive() const { return scaling.batch > 0; }
  MemberOptions member() const;  // but for who it is
  // The batch of a step; `scaling state` counts with adaptive scaling.
  Cursor cursor(int64_t step, const ScalingState& scaling_state) const;
  // With a session that it may be open in, its gradients go there as they become ready, and the leaf has none. Its
  // tensors are on the CPU unless they are to stay where they are computed.
  RankGradient rank_gradient(const Batch& batch, int64_t step, int vrank, Session* opened = nullptr,
                             bool stays = false);
  // Of the state, in place. Failure where the loss or the gradient is not finite (NUMERICS.md, rule 22). At least one
  // leaf with samples was computed before.
  Update update(int64_t step, const Reduced& reduced);

 private:
  MicroBatchGraphs graphs_;
  std::vector<Statistic> statistics_;  // of any leaf: which batch norms there are
};

}  // namespace elinvar
