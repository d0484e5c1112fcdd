#pragma once
// The coordinator's part of adaptive scaling (PROTOCOL.md, "Adaptive scaling"): the current batch, the measured times
// of steps, and the generation in which the current history began. With exact scaling it does nothing.
#include <optional>
#include <vector>

#include "elastic/protocol/job_state.h"
#include "elastic/step/scaling.h"

namespace elinvar {

class BatchScaling {
 public:
  explicit BatchScaling(JobState& job) : job_(job) {}

  // Continues from the records of an earlier coordinator.
  void take_over(const CoordinatorRecords& records);
  // The run continues from a state that older generations may have passed: their reports no longer count.
  void begin_history(int64_t number);
  // Returns whether the message's steps and states belong to the current history; always true with exact scaling.
  bool of_this_history(const Message& message) const;

  // Adds a step of the current generation to the measurements.
  void measure(const StepFacts& facts);
  // Sets the current batch: a new generation changes it, or recovers a step that has it.
  void use(int64_t batch) { batch_ = batch; }
  // Returns the batch for this many workers if it differs from the current one or, with `larger`, exceeds it. Returns
  // nothing otherwise, and while the ledger determines the batches of the next steps.
  std::optional<Scaled> other_batch(size_t workers, bool larger) const;

  // Returns the scaling part of the record of a generation of this many workers; nothing with exact scaling.
  std::optional<GenerationScaling> record(size_t workers);
  // Returns the scaling state at the beginning of the history.
  const ScalingState& first_state() const { return recorded_.scaling_state; }

 private:
  int replicas(int workers) const;  // those that workers form; each worker is one without tensor parallelism

  JobState& job_;
  int base_workers_ = 0;  // workers in the run's first generation; 0 before it
  int64_t history_ = 0;   // the generation in which the current history began
  int64_t batch_ = 0;     // the newest batch known here
  Profile profile_;
  CoordinatorWorld::Recorded recorded_;
};

}  // namespace elinvar
