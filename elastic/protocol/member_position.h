#pragma once
// Where a member stands in its job: what all of its parts read, and the member alone changes.
#include <map>
#include <optional>

#include "comm/packet.h"
#include "elastic/step/generation.h"

namespace elinvar {

inline constexpr int64_t kUnknownSteps = int64_t{1} << 60;
// The generation of results that go to a worker that only listens.
inline constexpr int64_t kCopyGeneration = 0;

struct MemberPosition {
  PeerId self = 0;
  PeerId coordinator = 0;  // the only one that it obeys; 0: it was introduced to none
  // The newest generation that has begun here, and later ones that it was told of: a second may come before it knows
  // that the first has begun.
  std::optional<Generation> generation = {};
  std::map<int64_t, Generation> proposed = {};
  int index = -1;                 // among the members of `generation`; -1: it is none of them
  int64_t promised = 0;           // messages of generations below do not count any more
  bool loaded = false;            // the network has the state after `step` updates
  int64_t completed = 0;          // reductions that are complete
  int64_t step = 0;               // updates made: between a reduction and its update one less than `completed`
  int64_t steps = kUnknownSteps;  // of the whole run

  bool active() const { return generation.has_value() && index >= 0; }
  bool fenced() const { return promised > number(); }
  bool begun() const { return active() && completed >= generation->first_step; }  // this generation makes the step
  bool last() const { return completed == steps; }  // rank gradients are facts alone, and no update follows
  int id() const { return active() ? generation->members[static_cast<size_t>(index)].id : 0; }  // 0: none yet
  int64_t number() const { return generation ? generation->number : 0; }
  int members() const { return generation ? static_cast<int>(generation->members.size()) : 0; }
  // With adaptive scaling this is known once all but the last reduction are complete.
  std::optional<int64_t> known_steps() const { return steps == kUnknownSteps ? std::nullopt : std::optional(steps); }
};

}  // namespace elinvar
