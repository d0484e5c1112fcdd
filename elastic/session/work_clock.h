#pragma once
// What a worker's loop is at and how long that takes, as its heartbeats tell: a hang is found from it
// (elastic/protocol/hang.h). On whatever clock the caller has; not thread-safe.
#include <map>
#include <optional>
#include <string>

#include "elastic/protocol/roster.h"

namespace elinvar {

// May have to wait for a disk, so that no copy tells how long the next takes.
inline constexpr const char* kCopying = "the copy of the state";

class WorkClock {
 public:
  void at(const std::string& what, Seconds now);  // from now on; "": it waits
  void looked() { woken_.reset(); }               // it has seen all that there was, and waits for more
  void news(Seconds now);                         // there is something to see
  void heard(Seconds now) { heard_ = now; }       // something came that it may have waited for
  // What it is at; or, if the loop waits and has nothing to see, `idle`: since it waits and nothing came. What one kind
  // of work took is told apart from the others; its first time, in which memory and code are touched first, tells
  // nothing of the next.
  Work heartbeat(Seconds now) const;

 private:
  struct Done {
    int64_t times = 0;
    Seconds longest = 0;
  };
  std::string work_;
  Seconds began_ = 0, heard_ = 0;
  std::optional<Seconds> woken_;  // there was news while it waited, and it has not looked since
  std::map<std::string, Done> done_;
};

}  // namespace elinvar
