#pragma once
// What a run computes, wherever its parts are done: gradients and updates, as functions of the state and the step. In a
// job the loop (tools/training/loop.h) shares them with other workers; repro does them all in one process.
#include <filesystem>
#include <string>
#include <vector>

#include "data/loader.h"
#include "elastic/protocol/member.h"
#include "elastic/session/gradient_sink.h"
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
  // Computes the gradient of a virtual rank, whose tensors go into the sink. Returns the rest of it.
  RankFacts rank_gradient(Batch batch, int64_t step, int vrank, GradientSink& sink);
  // All of it, on the CPU.
  RankGradient rank_gradient(const Batch& batch, int64_t step, int vrank);
  // Of the state, in place. Failure where the loss or the gradient is not finite (NUMERICS.md, rule 22). At least one
  // gradient with samples was computed before.
  Update update(int64_t step, const Reduced& reduced);

 private:
  MicroBatchResult passes(const Batch& batch, const Rng& rng, GradientSink& sink);

  MicroBatchGraphs graphs_;
  std::vector<Statistic> statistics_;  // of any leaf: which batch norms there are
};

}  // namespace elinvar
