#pragma once
// The last checkpoint: its step, whether it is written, and the attempts to write it. It is that of the last step or of
// the step at which the run is stopped. Without it a run does not end well.
#include <optional>
#include <string>

#include "elastic/protocol/facts_on_file.h"

namespace elinvar {

class LastCheckpoint {
 public:
  LastCheckpoint(JobState& job, const FactsOnFile& facts);

  // Begins again for a run that continues from an earlier state.
  void restart();
  void committed(int64_t step);
  // Handles a checkpoint that could not be written. If it is the last one, ends the job after options.save_attempts
  // failures.
  void failed(int64_t step, const std::string& reason, Seconds now);
  // Returns a reason for a fence if the last checkpoint is to be tried again. Ends the job if writing takes too long.
  FenceReason retry(Seconds now);

  // Returns whether every step is on file and the last state is saved.
  bool whole() const;
  // Returns whether `step` is the one at which the current generation stops the run.
  bool stops_at(int64_t step) const;
  bool to_be_retried() const { return again_at_.has_value(); }

 private:
  std::optional<int64_t> due() const;

  JobState& job_;
  const FactsOnFile& facts_;
  int64_t saved_;  // step of the newest checkpoint; -1: none
  int failures_ = 0;
  std::optional<Seconds> again_at_;   // when to try again
  std::optional<Seconds> due_since_;  // when the wait for the last checkpoint began
};

}  // namespace elinvar
