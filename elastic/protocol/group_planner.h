#pragma once
// Decides which generations form a group of GPUs and from which earlier group, and keeps what became of them
// (PROTOCOL.md, "Groups of GPUs").
#include <optional>
#include <string>
#include <vector>

#include "elastic/protocol/job_state.h"

namespace elinvar {

class GroupPlanner {
 public:
  explicit GroupPlanner(JobState& job) : job_(job) {}

  // Why these workers cannot form a group, by what they said in their hello; "": they can.
  std::string why_none(const std::vector<PeerId>& peers) const;
  // The generation whose group a planned generation goes on with: the current one, if all new members are in it and
  // its group has made a step.
  std::optional<int64_t> source_of_planned(const Generation& next) const;
  // The same after a fence: a group of which all members say that they are in it with nothing under way.
  std::optional<int64_t> source_of_recovered(const Generation& next) const;
  void created(const Generation& generation);  // a record

  // What members tell of their groups. A failure in the middle of a step needs a fence.
  void used(const Message& message, const messages::GroupUsed& used);
  void missing(const Worker& worker, const messages::GroupMissing& missing);
  FenceReason failed(const Worker& worker, const Message& message, const messages::GroupFailed& failed);
  // A worker was lost during a fence: then its death is taken for the reason why the group failed.
  void excuse_failure() { failed_ = false; }
  void fence_answered();  // counts a failure that has no such excuse

  // What carries the tensors of the current generation, and why not NCCL.
  nlohmann::json data_plane() const;

 private:
  void unavailable(const Worker& worker, int64_t of, const std::string& reason);

  JobState& job_;
  int64_t used_ = 0;     // the newest generation whose group has made a step
  std::string trouble_;  // why the newest generation that was to have a group has none
  bool failed_ = false;  // the present fence is for a group that failed
  int failures_ = 0;     // of groups in the middle of a step
};

}  // namespace elinvar
