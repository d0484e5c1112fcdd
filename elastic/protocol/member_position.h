#pragma once
// A member's position in its job. All of its parts read it, and only the member changes it.
#include <map>
#include <optional>

#include "comm/peer.h"
#include "elastic/step/generation.h"

namespace elinvar {

inline constexpr int64_t kUnknownSteps = int64_t{1} << 60;
// The generation of results for a worker that only listens.
inline constexpr int64_t kCopyGeneration = 0;

struct MemberPosition {
  PeerId self = 0;
  PeerId coordinator = 0;  // the only coordinator that it obeys; 0: it was introduced to none
  // The newest generation that has begun here, and later ones that were proposed: a second proposal may come before the
  // member knows that the first generation has begun.
  std::optional<Generation> generation = {};
  std::map<int64_t, Generation> proposed = {};
  int index = -1;                 // among the members of `generation`; -1: it is not a member
  int64_t promised = 0;           // messages of lower generations do not count any more
  bool loaded = false;            // the network has the state after `step` updates
  int64_t completed = 0;          // the number of complete reductions
  int64_t step = 0;               // updates made: one less than `completed` between a reduction and its update
  int64_t steps = kUnknownSteps;  // number of updates in the whole run

  bool active() const { return generation.has_value() && index >= 0; }
  bool fenced() const { return promised > number(); }
  bool begun() const { return active() && completed >= generation->first_step; }  // this generation makes the step
  bool last() const { return completed == steps; }  // rank gradients have facts only, and no update follows
  int id() const { return active() ? generation->members[static_cast<size_t>(index)].id : 0; }  // 0: none yet
  int64_t number() const { return generation ? generation->number : 0; }
  int members() const { return generation ? static_cast<int>(generation->members.size()) : 0; }
  // Returns the steps of the run. With adaptive scaling they are known once all but the last reduction are complete.
  std::optional<int64_t> known_steps() const { return steps == kUnknownSteps ? std::nullopt : std::optional(steps); }
};

}  // namespace elinvar
