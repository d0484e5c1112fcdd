#pragma once
// Handles an audit that has found a difference (PROTOCOL.md, "Audit"): evicts the guilty, makes the next generation a
// trial of the step, has all members restore a checkpoint, or ends the run.
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

  // The action that the coordinator must take: evict the guilty members, or fence all.
  struct Consequence {
    std::vector<PeerId> guilty = {};
    bool fence = false;
    std::string reason = {};
  };
  // Judges a member's report; the state after `agreed_state` updates is known to be right. Returns nothing if the
  // report is out of date, or if the job has ended because the fault cannot be found or no member is left.
  std::optional<Consequence> examine(const Message& message, const Evidence& evidence, int64_t agreed_state);

  // Removes from the recovery the members that cannot be witnesses of the step in doubt. Drops the doubt if the job
  // continues at another step.
  void choose_witnesses(Recovery& recovery);
  // Returns the trial that the next generation is to be, if any.
  std::optional<Trial> trial() const { return doubt_ ? std::optional(doubt_->trial) : std::nullopt; }
  // Returns whether all members restore a checkpoint, because the audit of the recovery's step could not tell whose
  // sharded state is right (ZeRO).
  bool restores(const Recovery& recovery) const { return doubt_ && doubt_->restores && doubt_->step == recovery.step; }
  void begun() { doubt_.reset(); }  // the generation with trial() has begun, or a checkpoint is restored

 private:
  nlohmann::json machine_of(int id) const;

  struct Doubt {
    int64_t step;
    Trial trial;
    bool restores = false;
  };
  bool may_restore(const Evidence& evidence);
  JobState& job_;
  std::optional<Doubt> doubt_;
  int64_t tried_step_ = -1;  // the newest step that was judged
  int tries_ = 0;            // trials of this step without a verdict
  int64_t restored_ = -1;    // the newest checkpoint that was restored because of a difference; -1: none
};

}  // namespace elinvar
