#pragma once
// Measures what a worker's loop is doing and for how long. Heartbeats report it, and hangs are detected from it
// (elastic/protocol/hang.h). The session reports the loop's place in a step; timed activities of the loop's thread
// (tensor/base/activity.h) report what it does there. Thread-safe.
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "elastic/protocol/roster.h"
#include "tensor/base/activity.h"

namespace elinvar {

// A copy may have to wait for a disk, so no copy predicts the time of the next.
inline constexpr const char* kCopying = "the copy of the state";

class WorkClock final : public ActivityClock {
 public:
  // Converts a time to seconds since the epoch of the clock of ActivityClock::Time.
  static Seconds seconds(Time time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }

  void at(const std::string& what, Seconds now);  // the loop's work from now on; "": it waits
  // An activity begins, and later the innermost one ends. The surrounding activity's time stops meanwhile.
  void begins(const char* what, Time now, ActivityPart part = {}) override;
  void ends(Time now) override;
  void looked();            // the loop has seen all news and waits for more
  void news(Seconds now);   // there is news for the loop
  void heard(Seconds now);  // a message arrived that the loop may have waited for
  // Returns the innermost current work; or, if the loop waits and has no news, the `idle` time since it began to wait
  // and since the last message. Each kind of work is measured separately. The first time of a kind does not count,
  // because it touches memory and code for the first time.
  Work heartbeat(Seconds now) const;

 private:
  struct Spell {
    std::string what = {};
    Seconds before = 0, since = 0;  // the time until the last interruption, and when it resumed
    ActivityPart part = {};
  };
  struct Done {
    int64_t times = 0;
    Seconds longest = 0;
  };
  void note(const Spell& ended, Seconds took);

  mutable std::mutex mutex_;
  std::vector<Spell> spells_{1};  // the first is set by at(); each later one is an activity within the one before it
  Seconds heard_ = 0;
  std::optional<Seconds> woken_;  // when news came while the loop waited, if it has not looked since
  std::map<std::string, Done> done_;
};

// A wait within work. It is not part of the work's time, which goes on after it; so the time of work with several waits
// is measured as one.
class WorkPause {
 public:
  explicit WorkPause(WorkClock& work) : work_(work) { work_.begins("", std::chrono::steady_clock::now()); }
  ~WorkPause() { work_.ends(std::chrono::steady_clock::now()); }
  WorkPause(const WorkPause&) = delete;
  WorkPause& operator=(const WorkPause&) = delete;

 private:
  WorkClock& work_;
};

}  // namespace elinvar
