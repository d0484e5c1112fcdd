#pragma once
// Detects that a worker whose process lives and whose heartbeats arrive has stopped working, by comparing the duration
// of its current work with its own earlier measurements. A pure function; the coordinator evicts the worker that it
// names, as if it had died.
#include <optional>
#include <string>
#include <vector>

#include "elastic/protocol/roster.h"

namespace elinvar {

struct HangLimits {
  Seconds floor = 2.5;    // seconds; shorter work never counts as a hang
  double factor = 10;     // multiple of the worker's own longest time for this kind of work
  Seconds unknown = 600;  // seconds for work that has not ended twice: the first step, the first evaluation
  double shared = 10;     // factor on all of these if more than half of the members are late: then the cause is shared
};

struct Hung {
  PeerId peer;
  std::string reason;
};

// Returns the members of a generation that hang. Waiting for others is not work; each kind of work (a rank gradient, an
// evaluation, loading a state) is measured separately. Never names a member that is alone, because no other could go
// on.
std::vector<Hung> find_hung(const Generation& generation, const Roster& roster, const HangLimits& limits, Seconds now);

// The time that all members may wait without receiving anything before a message counts as lost. The message may only
// be slow, so each loss that was declared in vain doubles the time, until a thousand steps have succeeded.
class Patience {
 public:
  explicit Patience(Seconds first) : first_(first) {}
  Seconds at(int64_t completed) const;  // after `completed` steps
  void lost(int64_t completed);

 private:
  Seconds first_;
  int times_ = 0;
  int64_t last_ = 0;
};
// Returns the initial patience for messages of up to this many bytes.
Seconds patience_for(int64_t bytes);

// Returns the first member that misses something, and what it misses, if a message is lost: all members of the
// generation wait, and none has received anything for `patience`.
std::optional<Hung> find_stuck(const Generation& generation, const Roster& roster, Seconds patience, Seconds now);

}  // namespace elinvar
