#pragma once
// A worker goes from a checkpoint to a state of its own again, alone, where an audit can be decided by nothing else
// (PROTOCOL.md, "Audit"): a job with one member, of which nobody hears, in the usual training loop.
#include "elastic/member.h"

namespace elinvar {

class Replay {
 public:
  // `options` are those of the member that does so. Until the state of step `from` is in place nothing else is called.
  Replay(const MemberOptions& options, const Member::Replay& steps);

  Member& member() { return member_; }
  void advance();  // the update is made
  bool over() const { return member_.step() == to_; }

 private:
  Member member_;
  int64_t to_;
};

}  // namespace elinvar
