#pragma once
// After a death: what those that answered a fence go on with. A pure function of their answers.
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "elastic/protocol/roster.h"

namespace elinvar {

struct Recovery {
  int64_t step = -1;                         // the newest that anyone has completed; -1: nobody has a state
  std::vector<PeerId> members = {};          // who has it, or lacks only its last result, which the others still have
  std::map<PeerId, int64_t> completed = {};  // of all that have a state
  std::map<PeerId, std::vector<Interval>> kept = {};  // what members with the newest step hold of the interrupted one
  // With adaptive scaling: at which scaling state to go on, that of those who have begun with the interrupted step if
  // there are any; and the last step of the run, if somebody knows.
  std::optional<ScalingState> scaling_state = {};
  std::optional<int64_t> end = {};
};

// All `peers` are in the roster and have answered.
Recovery recover(const Roster& roster, const std::set<PeerId>& peers);

}  // namespace elinvar
