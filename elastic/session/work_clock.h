#pragma once
// What a worker's loop is at and how long that takes, as its heartbeats tell: a hang is found from it
// (elastic/protocol/hang.h). The session says where in a step the loop is; timed activities of the loop's thread
// (tensor/base/activity.h) say what it is at within that. Thread-safe.
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "elastic/protocol/roster.h"
#include "tensor/base/activity.h"

namespace elinvar {

// May have to wait for a disk, so that no copy tells how long the next takes.
inline constexpr const char* kCopying = "the copy of the state";

class WorkClock final : public ActivityClock {
 public:
  // Seconds are those since the epoch of the clock of ActivityClock::Time.
  static Seconds seconds(Time time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }

  void at(const std::string& what, Seconds now);  // from now on; "": it waits
  // An activity begins, and the innermost one ends. What it is within takes no time meanwhile.
  void begins(const char* what, Time now) override;
  void ends(Time now) override;
  void looked();            // it has seen all that there was, and waits for more
  void news(Seconds now);   // there is something to see
  void heard(Seconds now);  // something came that it may have waited for
  // What it is at, the innermost; or, if the loop waits and has nothing to see, `idle`: since it waits and nothing
  // came. Each kind of work is measured apart from the others. The first time of a kind does not count: memory and code
  // are touched for the first time in it.
  Work heartbeat(Seconds now) const;

 private:
  struct Spell {
    std::string what = {};
    Seconds before = 0, since = 0;  // what it took until it was last interrupted, and when it went on
  };
  struct Done {
    int64_t times = 0;
    Seconds longest = 0;
  };
  void note(const Spell& ended, Seconds took);

  mutable std::mutex mutex_;
  std::vector<Spell> spells_{1};  // the first is that of at(), each later one an activity within the one before it
  Seconds heard_ = 0;
  std::optional<Seconds> woken_;  // there was news while it waited, and it has not looked since
  std::map<std::string, Done> done_;
};

}  // namespace elinvar
