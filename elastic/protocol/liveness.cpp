#include "elastic/protocol/liveness.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace elinvar {

using Phase = JobState::Phase;
using State = Worker::State;

constexpr Seconds kAway = 0.25;      // without listening: then it was stopped, or waited for a disk
constexpr Seconds kLongestRest = 1;  // between two looks
constexpr Seconds kSoon = 0.025;     // the same where something is on its way

void Liveness::woke(Seconds now) { deaf_from_ = std::min(deaf_from_, now); }

void Liveness::forgive_absence(Seconds now) {
  if (now <= deaf_from_ + kAway) return;
  for (auto& [peer, w] : job_.workers) w.seen = std::min(now, w.seen + now - deaf_from_);
}

void Liveness::rest(Seconds now, bool soon) {
  Seconds next = now + (soon && !deserted_ ? kSoon : kLongestRest);
  for (const auto& [peer, w] : job_.workers)
    if (const Seconds silent = w.seen + job_.options.heartbeat_timeout; silent >= now) next = std::min(next, silent);
  deaf_from_ = look_by_ = next;
}

// Where nobody who could go on is heard, all are waited for. What stopped them may be one thing, so from the first word
// of any of them all have as long again. Those that are stopped at once spoke last at different times, and a word may
// come late: while none was heard for half of the timeout nothing is decided.
std::vector<Hung> Liveness::silent(Seconds now) {
  const Seconds timeout = job_.options.heartbeat_timeout;
  std::vector<Hung> silent;
  std::optional<Seconds> newest;  // word of those who have the state
  for (const auto& [peer, w] : job_.workers) {
    if (now - w.seen > timeout) silent.push_back({peer, fmt::format("silent for {:.1f} s", timeout)});
    if (w.state == State::joining && job_.phase != Phase::starting) continue;
    if (w.state == State::receiving) continue;
    newest = std::max(newest.value_or(w.seen), w.seen);
  }
  const bool heard = newest && now - *newest <= timeout / 2;
  if (newest && now - *newest > timeout) {
    if (!deserted_) {
      job_.world.event(
          "hold", {{"workers", 0}, {"reason", "all who have the state are silent"}, {"seconds", job_.options.hold}});
      deserted_ = now;
    }
    if (now - *deserted_ < job_.options.hold) return {};
  } else if (deserted_) {
    if (heard) job_.world.event("heard", {{"after", now - *deserted_}});
    for (auto& [peer, w] : job_.workers) w.seen = now;
    no_hang_until_ = now + timeout;  // what they were at has lasted for as long
    silent.clear();
  } else if (newest && !heard) {
    return {};
  }
  deserted_.reset();
  return silent;
}

std::vector<Hung> Liveness::hung(Seconds now) const {
  if (job_.phase != Phase::running || now < no_hang_until_) return {};
  return find_hung(*job_.current, job_.workers, job_.options.hang, now);
}

FenceReason Liveness::stuck(Seconds patience, Seconds now) {
  if (job_.phase != Phase::running) return std::nullopt;
  const std::optional<Hung> stuck = find_stuck(*job_.current, job_.workers, patience, now);
  if (!stuck) return std::nullopt;
  lost_message();
  const int id = job_.workers.at(stuck->peer).id;
  job_.world.event("stuck", {{"worker", id}, {"seconds", patience}, {"misses", stuck->reason}});
  return fmt::format("worker {} misses {}", id, stuck->reason);
}

}  // namespace elinvar
