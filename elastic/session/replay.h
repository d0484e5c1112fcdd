#pragma once
// Updates that were made before, made again by one worker alone: a job with one member, of which nobody hears. A
// session does so in the usual training loop where an audit can be decided by nothing else (PROTOCOL.md, "Audit"),
// repro with whole runs.
#include "elastic/protocol/member.h"

namespace elinvar {

class Replay {
 public:
  // Of `options` what decides bits counts. It begins with the state after `first` updates, the last of which was made
  // at `scaling state`; until that is in place nothing else is called. With adaptive scaling the batch changes as
  // `changes` say.
  Replay(MemberOptions options, int64_t first, const ScalingState& scaling_state = {},
         std::vector<GenerationScaling::Change> changes = {});

  Member& member() { return member_; }
  const Member& member() const { return member_; }
  void advance();  // the update is made

 private:
  Member member_;
};

}  // namespace elinvar
