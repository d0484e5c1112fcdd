#pragma once
// Repeats earlier updates with one worker alone, in a job with one member and no network. A session runs a replay in
// the usual training loop if nothing else can decide an audit (PROTOCOL.md, "Audit"); repro replays whole runs.
#include "elastic/protocol/member.h"

namespace elinvar {

class Replay {
 public:
  // Uses only those `options` that determine bits. Begins with the state after `first` updates, whose last update was
  // made at `scaling_state`; call nothing else before that state is in place. With adaptive scaling the batch changes
  // as `changes` say.
  Replay(MemberOptions options, int64_t first, const ScalingState& scaling_state = {},
         std::vector<GenerationScaling::Change> changes = {});

  Member& member() { return member_; }
  const Member& member() const { return member_; }
  void advance();  // records that the update is made

 private:
  Member member_;
};

}  // namespace elinvar
