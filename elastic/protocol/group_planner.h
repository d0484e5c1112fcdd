#pragma once
// Decides which generations form a group of GPUs and from which earlier group, and tracks the groups' success
// (PROTOCOL.md, "Groups of GPUs").
#include <optional>
#include <string>
#include <vector>

#include "elastic/protocol/job_state.h"

namespace elinvar {

class GroupPlanner {
 public:
  explicit GroupPlanner(JobState& job) : job_(job) {}

  // Returns why the members of a generation form no group: it would carry nothing, or their hello messages say that
  // they cannot. Returns "" if they form one.
  std::string why_none(const Generation& generation) const;
  // Returns the generation whose group a planned generation continues: the current one, if all new members are in it
  // and its group has made a step.
  std::optional<int64_t> source_of_planned(const Generation& next) const;
  // Returns the same after a fence: the group in which all members answered to be, with nothing under way.
  std::optional<int64_t> source_of_recovered(const Generation& next) const;
  void created(const Generation& generation);  // its record was created

  // Reports of members on their groups. A failure in the middle of a step requires a fence.
  void used(const Message& message, const messages::GroupUsed& used);
  void missing(const Worker& worker, const messages::GroupMissing& missing);
  FenceReason failed(const Worker& worker, const Message& message, const messages::GroupFailed& failed);
  // A worker was lost during the fence; its death is taken as the cause of the group's failure.
  void excuse_failure() { failed_ = false; }
  void fence_answered();  // counts a failure without such an excuse

  // Returns the transport of the current generation's gradients and, unless it is NCCL, the reason; `parameters`, the
  // same of parameters after updates; and `within`, the same of the values that the members of a model replica send
  // each other.
  nlohmann::json data_plane() const;

 private:
  void unavailable(const Worker& worker, int64_t of, const std::string& reason);

  JobState& job_;
  int64_t used_ = 0;     // the newest generation whose group has made a step
  std::string trouble_;  // why the newest generation that was to have a group has none
  bool failed_ = false;  // the current fence is for a failed group
  int failures_ = 0;     // failures of groups in the middle of a step
};

}  // namespace elinvar
