#pragma once
// What follows from an audit that has found a difference (PROTOCOL.md, "Audit"): the guilty are evicted, or the next
// generation is a trial of the step, or the run ends.
#include <optional>
#include <string>
#include <vector>

#include "elastic/audit/audit.h"
#include "elastic/protocol/job_state.h"
#include "elastic/protocol/recovery.h"

namespace elinvar {

class AuditTrials {
 public:
  explicit AuditTrials(JobState& job) : job_(job) {}

  // What must be done: these members are evicted for their fault, or all are fenced.
  struct Consequence {
    std::vector<PeerId> guilty = {};
    bool fence = false;
    std::string reason = {};
  };
  // Judges what a member reports, of which the state after `agreed_state` updates is known to be right. Nothing: the
  // report is out of date, or the job has ended, because the fault cannot be found or nobody is left.
  std::optional<Consequence> examine(const Message& message, const Evidence& evidence, int64_t agreed_state);

  // Leaves those in the recovery that can be witnesses of the step in doubt, or drops the doubt if it goes on
  // elsewhere.
  void choose_witnesses(Recovery& recovery);
  // What the next generation is to be; nothing: no trial.
  std::optional<Trial> trial() const { return doubt_ ? std::optional(doubt_->trial) : std::nullopt; }
  void begun() { doubt_.reset(); }  // the generation that trial() was asked for

 private:
  nlohmann::json machine_of(int id) const;

  struct Doubt {
    int64_t step;
    Trial trial;
  };
  JobState& job_;
  std::optional<Doubt> doubt_;
  int64_t tried_step_ = -1;  // the last step that was judged
  int tries_ = 0;            // of this step, that led to nobody
};

}  // namespace elinvar
