#pragma once
// Whether a worker whose process lives and whose heartbeats come has stopped working: by what its present work should
// take, as measured on itself. A pure function; the worker that it names is evicted like one that died.
#include <optional>
#include <string>
#include <vector>

#include "elastic/protocol/roster.h"

namespace elinvar {

struct HangLimits {
  Seconds floor = 2.5;    // nothing shorter counts as a hang,
  double factor = 10;     // nor anything less than so many times what this kind of work takes there,
  Seconds unknown = 600;  // nor less than this where it was never seen to end: the first step, the first evaluation
  double shared = 10;     // times all of this if more than half of the members are late: then it is no fault of theirs
};

struct Hung {
  PeerId peer;
  std::string reason;
};

// Of the members of a generation those that hang. Waiting for others is no work; of different kinds of work (a leaf, an
// evaluation, loading a state) each is measured by itself. A member that is alone is never named: nobody could go on.
std::vector<Hung> find_hung(const Generation& generation, const Roster& roster, const HangLimits& limits, Seconds now);

// How long all may wait while nothing comes before a message counts as lost. It may just be slow: twice as long each
// time that was in vain, until a thousand steps have gone well.
class Patience {
 public:
  explicit Patience(Seconds first) : first_(first) {}
  Seconds at(int64_t completed) const;  // when so many steps are complete
  void lost(int64_t completed);

 private:
  Seconds first_;
  int times_ = 0;
  int64_t last_ = 0;
};
// The first one where messages have up to so many bytes.
Seconds patience_for(int64_t bytes);

// Whether something is lost: all members of a generation wait, and nothing came to any of them for so long. The first
// that misses something, and what.
std::optional<Hung> find_stuck(const Generation& generation, const Roster& roster, Seconds patience, Seconds now);

}  // namespace elinvar
