#pragma once
// Plans changes of the membership. A pure function; the coordinator proposes its result.
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "elastic/protocol/roster.h"

namespace elinvar {

struct PlanLimits {
  int vranks = 1;
  int max_workers = 1 << 20;
  ReplicaLimits replica = {};  // with tensor or pipeline parallelism; else each member computes its own rank gradients
  double reassign_gain = 1.1;  // the minimum speed-up of a step for which shares alone are changed
};

// Requests by people.
struct Wishes {
  std::string stop = {};  // the reason; "": do not stop
  bool checkpoint = false;
};

struct Plan {
  std::vector<PeerId> members;
  std::vector<PeerId> joining;  // those of `members` that are not members yet
  bool stop = false, checkpoint = false;
  std::string reason;  // reasons of all parts of the plan, joined
};

// Returns the change that `current` needs, or nothing. All its members must be in the roster. Considers other shares
// for the same members only if `may_reassign`. If every worker leaves and none is about to join, the plan is to save
// the state and stop.
std::optional<Plan> plan(const Generation& current, const Roster& roster, const Wishes& wishes,
                         const PlanLimits& limits, bool may_reassign);

}  // namespace elinvar
