#include "elastic/protocol/liveness.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace elinvar {

using Phase = JobState::Phase;
using State = Worker::State;

constexpr Seconds kAway = 0.25;  // after this long without listening, the coordinator was stopped or waited for a disk
constexpr Seconds kLongestRest = 1;  // between two checks
constexpr Seconds kSoon = 0.025;     // between two checks while an event is expected

void Liveness::wait_ended(Seconds now) { deaf_from_ = std::min(deaf_from_, now); }

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

// While no worker with the state is heard, none is evicted. Their silence may have one cause, so from the first message
// of any of them all get the full timeout again. Workers that were stopped at once spoke last at different times, and a
// message may be late: nothing is decided while none of them was heard for half of the timeout.
std::vector<Hung> Liveness::silent(Seconds now) {
  const Seconds timeout = job_.options.heartbeat_timeout;
  std::vector<Hung> silent;
  std::optional<Seconds> newest;  // newest message of a worker with the state
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
    no_hang_until_ = now + timeout;  // their current work includes the silence
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
