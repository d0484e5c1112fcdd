#pragma once
// The facts of steps on their way to the ledger: how far they are written, and of how many the members know that they
// are, so that they need not keep them (PROTOCOL.md, "A step").
#include <vector>

#include "elastic/protocol/job_state.h"

namespace elinvar {

class FactsOnFile {
 public:
  explicit FactsOnFile(JobState& job) : job_(job), on_file_(job.first_step - 1) {}

  // Writes facts that a member tells, and confirms to the members what is due. Returns false if there is a later
  // coordinator: nobody may be told that they are on file, and the job has ended here.
  bool take(const std::vector<StepFacts>& steps, Seconds now);
  // Writes facts of a worker that is no longer part of the job: they are true all the same. Returns false as take().
  bool write(const std::vector<StepFacts>& steps);

  bool last_told() const { return last_told_; }  // a member has told the facts of the last reduction
  int64_t on_file() const { return on_file_; }   // the last step that is written without a gap
  // Updates in the newest state whose digests all members were seen to agree on.
  int64_t agreed_state() const { return agreed_state_; }

 private:
  void confirm(Seconds now);

  JobState& job_;
  int64_t on_file_;
  int64_t heard_ = -1;  // the last step that a member has told; of a run that is resumed more is on file
  int64_t confirmed_ = -1;
  Seconds confirmed_at_ = 0;
  int64_t agreed_state_ = 0;
  bool last_told_ = false;
};

}  // namespace elinvar
