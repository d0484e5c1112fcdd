#pragma once
// The computation of a run, wherever its parts run: gradients and updates, as functions of the state and the step. In a
// job the loop (tools/training/loop.h) shares the work with other workers; repro does all of it in one process.
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/loader.h"
#include "elastic/protocol/member.h"
#include "elastic/session/gradient_sink.h"
#include "nn/input_store.h"
#include "nn/micro_batch_graphs.h"
#include "nn/network.h"
#include "nn/segment_measurement.h"
#include "tools/training/training_setup.h"

namespace elinvar {

struct Update {
  double lr = 0, gradient_norm = 0;
};

class Training {
 public:
  // Opens the data and builds the network. Throws UsageError if settings do not fit the data, the network or the
  // device. `zero`: ZeRO's stage. `data` may be null (TrainingSetup's `opened`).
  Training(const Config& config, Device device, int zero = 0, const Offload& offload = {},
           std::shared_ptr<const Dataset> data = nullptr);

  TrainingSetup setup;
  Loader loader;
  int64_t steps = 0;  // steps of the whole run; with adaptive scaling, the number of steps with the configured batch
  int64_t scheduled_steps = 0;  // those of the schedule, which are counted in batches of run.batch_size
  ScalingOptions scaling;

  const Config& config() const { return setup.config; }
  Recompute recompute() { return {config().run.recompute, inputs_ ? &*inputs_ : nullptr}; }
  bool adaptive() const { return scaling.batch > 0; }
  MemberOptions member(const Arrangement& arrangement = {}) const;  // without the member's identity
  // With pipeline parallelism, before member(): runs each segment of the network once. Throws UsageError if the network
  // cannot be divided into so many stages.
  void measure_segments(const Arrangement& arrangement);
  // .. what it found; otherwise, once there was a rank gradient, shapes and batch norms alone.
  const std::vector<MeasuredSegment>& segments() const { return segments_; }
  SegmentCosts segment_costs() const;  // seconds only once segments are measured; empty without segments
  // The duration of the forward pass through each segment, from the last rank gradient that this process computed
  // alone.
  const std::vector<double>& segment_seconds() const { return segment_seconds_; }
  // A rank gradient of which only the shapes count.
  RankGradient shapes_of_gradient() const;
  // Returns the batch of a step. `scaling_state` matters only with adaptive scaling.
  Cursor cursor(int64_t step, const ScalingState& scaling_state) const;
  // Reads the rows of sparse tables that a step touches. Call it before the first rank gradient of the step, and again
  // if the step begins again.
  void touch(const Cursor& at);
  // Computes the gradient of a virtual rank and passes its tensors to the sink. Returns the facts about it.
  RankFacts rank_gradient(Batch batch, int64_t step, int vrank, GradientSink& sink);
  // Returns the facts about a batch.
  static RankFacts facts_of(const Batch& batch);
  // Returns the whole rank gradient, on the CPU.
  RankGradient rank_gradient(const Batch& batch, int64_t step, int vrank);
  // Computes what one of several workers that compute a rank gradient together does, alone (PartialShards): of the
  // result only shapes count, and the gradients of other virtual shards take no memory.
  RankGradient partial_gradient(const Batch& batch, int64_t step, int vrank, const ShardRange& shards);
  // Updates the state in place. Requires that at least one gradient with samples was computed before. Throws Failure if
  // the loss or the gradient is not finite (NUMERICS.md, rule 22). With ZeRO, `gather` completes sums over whole
  // parameters (nn/update_rule.h), and the parameters that others update must come before finish_update().
  Update update(int64_t step, const Reduced& reduced, const GatherSums& gather = {});
  void finish_update(int64_t step);

 private:
  void find_touched(const Cursor& at);
  struct ShardedGradients {
    std::vector<Tensor> dense = {};      // of the slices of dense parameters that this worker keeps
    std::vector<Tensor> of_tables = {};  // by parameter: of sparse tables, whole
  };
  ShardedGradients gradients_of(const GradientShards& shards) const;
  void learn_segments(const std::vector<SegmentRun>& runs, bool alone);
  std::vector<int> statistics_segments() const;  // the segment of each batch statistic
  MicroBatchResult forward_backward(const Batch& batch, const Rng& rng, GradientSink& sink);

  std::optional<InputStore> inputs_;  // of recomputed blocks, if they are offloaded
  MicroBatchGraphs graphs_;
  std::optional<Cursor> touched_;          // the step whose rows are known
  std::vector<Statistic> statistics_;      // statistics of any rank gradient: they list the batch norms
  std::vector<MeasuredSegment> segments_;  // shapes and batch norms alone unless they were measured
  std::vector<double> segment_seconds_;
};

}  // namespace elinvar
