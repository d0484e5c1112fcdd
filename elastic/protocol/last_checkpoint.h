#pragma once
// The last checkpoint, without which a run does not end well: of which step it is, whether it is written, and how often
// writing it is tried. It is that of the last step, or of the step at which the run is stopped.
#include <optional>
#include <string>

#include "elastic/protocol/facts_on_file.h"

namespace elinvar {

class LastCheckpoint {
 public:
  LastCheckpoint(JobState& job, const FactsOnFile& facts);

  // The run goes on from an earlier state.
  void restart();
  void committed(int64_t step);
  // A checkpoint could not be written. Ends the job if it was the last one, after options.save_attempts of them.
  void failed(int64_t step, const std::string& reason, Seconds now);
  // Asks for a fence where the last checkpoint is to be tried again; ends the job where it takes too long.
  FenceReason retry(Seconds now);

  // Every step is on file, and the last state saved.
  bool whole() const;
  // Whether `step` is the one at which the present generation stops the run.
  bool stops_at(int64_t step) const;
  bool to_be_retried() const { return again_at_.has_value(); }

 private:
  std::optional<int64_t> due() const;

  JobState& job_;
  const FactsOnFile& facts_;
  int64_t saved_;  // the newest step; -1: none
  int failures_ = 0;
  std::optional<Seconds> again_at_;   // when to try again
  std::optional<Seconds> due_since_;  // since when the last checkpoint is waited for
};

}  // namespace elinvar
