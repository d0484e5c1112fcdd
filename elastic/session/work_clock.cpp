#include "elastic/session/work_clock.h"

#include <algorithm>

#include "tensor/base/check.h"

namespace elinvar {

using Guard = std::lock_guard<std::mutex>;

constexpr Seconds kToWake = 0.01;  // for a waiting thread to wake up

void WorkClock::note(const Spell& ended, Seconds took) {
  if (ended.what.empty()) return;
  Done& done = done_[ended.what];
  if (done.times++ > 0) done.longest = std::max(took, 0.99 * done.longest);
}

void WorkClock::at(const std::string& what, Seconds now) {
  const Guard lock(mutex_);
  Spell& spell = spells_.front();
  note(spell, spell.before + (spells_.size() == 1 ? now - spell.since : 0));
  spell = {.what = what, .since = now};
  woken_.reset();  // the loop now works on any news
}

void WorkClock::begins(const char* what, Time time, ActivityPart part) {
  const Guard lock(mutex_);
  const Seconds now = seconds(time);
  spells_.back().before += now - spells_.back().since;
  spells_.push_back({.what = what, .since = now, .part = part});
}

void WorkClock::ends(Time time) {
  const Guard lock(mutex_);
  invariant(spells_.size() > 1, "an activity ends that has begun");
  const Seconds now = seconds(time);
  note(spells_.back(), spells_.back().before + now - spells_.back().since);
  spells_.pop_back();
  Spell& around = spells_.back();
  around.since = now;
  if (!around.what.empty()) return;
  around.before = 0;  // it starts to wait now
  woken_.reset();
}

void WorkClock::looked() {
  const Guard lock(mutex_);
  woken_.reset();
}

void WorkClock::news(Seconds now) {
  const Guard lock(mutex_);
  if (!woken_) woken_ = now;
}

void WorkClock::heard(Seconds now) {
  const Guard lock(mutex_);
  heard_ = now;
}

Work WorkClock::heartbeat(Seconds now) const {
  const Guard lock(mutex_);
  const Spell& spell = spells_.back();
  if (!spell.what.empty()) {
    const auto done = done_.find(spell.what);
    const bool known = done != done_.end() && spell.what != kCopying;
    return {.what = spell.what,
            .lasts = spell.before + now - spell.since,
            .usual = known ? done->second.longest : 0.0,
            .part = spell.part.number,
            .parts = spell.part.of};
  }
  // The loop should have noticed the news by now.
  if (woken_) return {.what = "waiting although there is news", .lasts = now - *woken_, .usual = kToWake};
  return {.idle = now - std::max(spell.since, heard_)};
}

}  // namespace elinvar
