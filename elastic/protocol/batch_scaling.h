#pragma once
// Adaptive scaling as the coordinator sees it (PROTOCOL.md, "Adaptive scaling"): the present batch, what steps were
// measured to take, and which generation the present history began with. With exact scaling it does nothing.
#include <optional>
#include <vector>

#include "elastic/protocol/job_state.h"
#include "elastic/step/scaling.h"

namespace elinvar {

class BatchScaling {
 public:
  explicit BatchScaling(JobState& job) : job_(job) {}

  // A new coordinator goes on with these records.
  void take_over(const CoordinatorRecords& records);
  // The run goes on from a state that older generations may have left behind: what they tell is no longer true.
  void begin_history(int64_t number);
  // Whether what the message tells of a step or a state is of the present history; always with exact scaling.
  bool of_this_history(const Message& message) const;

  // Takes a step of the current generation into account.
  void measure(const StepFacts& facts);
  // A generation begins that changes the batch, or recovers a step of this batch.
  void use(int64_t batch) { batch_ = batch; }
  // The batch that so many workers should have: another one than now, or only a larger one. Nothing: none, or the
  // ledger still says which batches the next steps have.
  std::optional<Scaled> other_batch(size_t workers, bool larger) const;

  // What the record of a generation of so many workers says; nothing with exact scaling.
  std::optional<GenerationScaling> record(size_t workers);
  // The scaling state that the history began with.
  const ScalingState& first_state() const { return recorded_.scaling_state; }

 private:
  JobState& job_;
  int base_workers_ = 0;  // of the first generation of the run; 0: there is none yet
  int64_t history_ = 0;   // the generation that the present history began with
  int64_t batch_ = 0;     // the newest that is known here
  Profile profile_;
  CoordinatorWorld::Recorded recorded_;
};

}  // namespace elinvar
