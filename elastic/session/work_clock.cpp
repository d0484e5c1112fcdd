#include "elastic/session/work_clock.h"

#include <algorithm>

namespace elinvar {

constexpr Seconds kToWake = 0.01;  // for a thread that waits

void WorkClock::at(const std::string& what, Seconds now) {
  if (!work_.empty()) {
    Done& before = done_[work_];
    if (before.times++ > 0) before.longest = std::max(now - began_, 0.99 * before.longest);
  }
  work_ = what;
  began_ = now;
  woken_.reset();  // whatever news there was, it is at it
}

void WorkClock::news(Seconds now) {
  if (!woken_) woken_ = now;
}

Work WorkClock::heartbeat(Seconds now) const {
  if (!work_.empty()) {
    const auto done = done_.find(work_);
    const bool known = done != done_.end() && work_ != kCopying;
    return {.what = work_, .lasts = now - began_, .usual = known ? done->second.longest : 0.0};
  }
  // It should have looked by now.
  if (woken_) return {.what = "waiting although there is news", .lasts = now - *woken_, .usual = kToWake};
  return {.idle = now - std::max(began_, heard_)};
}

}  // namespace elinvar
