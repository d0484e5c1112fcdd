#pragma once
// Tracks the facts of steps on their way to the ledger: up to which step they are written, and up to which step the
// members were told so and need not keep them (PROTOCOL.md, "A step").
#include <vector>

#include "elastic/protocol/job_state.h"

namespace elinvar {

class FactsOnFile {
 public:
  explicit FactsOnFile(JobState& job) : job_(job), on_file_(job.first_step - 1) {}

  // Writes facts from a member and sends the members the confirmations that are due. Returns false if there is a later
  // coordinator: the facts must not be confirmed, and the job has ended.
  bool take(const std::vector<StepFacts>& steps, Seconds now);
  // Writes facts from a worker that is no longer part of the job; they are still valid. Returns like take().
  bool write(const std::vector<StepFacts>& steps);

  bool last_told() const { return last_told_; }  // a member has reported the last reduction
  int64_t on_file() const { return on_file_; }   // the last step written without a gap
  // Returns the updates in the newest state on whose digest all members agreed.
  int64_t agreed_state() const { return agreed_state_; }

 private:
  void confirm(Seconds now);

  JobState& job_;
  int64_t on_file_;
  int64_t heard_ = -1;  // the last step that a member has reported; a resumed run has more on file
  int64_t confirmed_ = -1;
  Seconds confirmed_at_ = 0;
  int64_t agreed_state_ = 0;
  bool last_told_ = false;
};

}  // namespace elinvar
