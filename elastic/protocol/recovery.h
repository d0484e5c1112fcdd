#pragma once
// Decides, after a death, with which state and members the job goes on: a pure function of the answers to a fence.
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "elastic/protocol/roster.h"

namespace elinvar {

struct Recovery {
  int64_t step = -1;  // the newest step that any worker has completed; -1 if none has a state
  // Workers with this step, and those that lack only its result while another worker still has it and, with ZeRO, have
  // all values of the update before that step.
  std::vector<PeerId> members = {};
  std::map<PeerId, int64_t> completed = {};  // of all workers that have a state
  // Virtual ranks of the interrupted step that members with the newest step keep: their assignment, computed or not.
  std::map<PeerId, std::vector<Interval>> kept = {};
  // With adaptive scaling: the scaling state to go on with, from workers that had begun the interrupted step if there
  // are any; and the last step of the run, if a worker knows it.
  std::optional<ScalingState> scaling_state = {};
  std::optional<int64_t> end = {};
  // With ZeRO: where the state is, from the answers of members. `keepers` is not set.
  Sharding sharding = {};
  std::vector<PeerId> restored = {};  // if `sharding.whole`: those that have restored the state

  // The stage of ZeRO with which members hold the state; null if none of them says so.
  std::optional<int> held_with() const {
    return sharding.whole && restored.empty() ? std::nullopt : std::optional(sharding.zero_before);
  }
};

// All `peers` are in the roster and have answered.
Recovery recovery_after(const Roster& roster, const std::set<PeerId>& peers);

}  // namespace elinvar
