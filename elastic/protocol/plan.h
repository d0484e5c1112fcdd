#pragma once
// Planned changes: who should be a member, and what for. A pure function; the coordinator proposes what it says.
#include <optional>
#include <string>
#include <vector>

#include "elastic/protocol/roster.h"

namespace elinvar {

struct PlanLimits {
  int vranks = 1;
  int max_workers = 1 << 20;
  double reassign_gain = 1.1;  // what a step must become faster by for other shares alone
};

// What people asked for.
struct Wishes {
  std::string stop = {};  // why; "": go on
  bool checkpoint = false;
};

struct Plan {
  std::vector<PeerId> members;
  std::vector<PeerId> joining;  // those of them that were none
  bool stop = false, checkpoint = false;
  std::string reason;  // of every part of it
};

// What is to change in `current`, all of whose members are in the roster; nothing, if nothing is. Other shares for the
// same members are considered only if `may_reassign`. If every worker leaves and none is about to come, the plan is to
// save the state and stop.
std::optional<Plan> plan(const Generation& current, const Roster& roster, const Wishes& wishes,
                         const PlanLimits& limits, bool may_reassign);

}  // namespace elinvar
