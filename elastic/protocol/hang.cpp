#include "elastic/protocol/hang.h"

#include <fmt/format.h>

#include <algorithm>

namespace elinvar {

std::vector<Hung> find_hung(const Generation& generation, const Roster& roster, const HangLimits& limits, Seconds now) {
  struct Late {
    const Worker* worker;
    Seconds lasts, limit;
  };
  std::vector<Late> late;
  for (const GenerationMember& m : generation.members) {
    const auto found = roster.find(m.peer);
    if (found == roster.end() || found->second.work.what.empty()) continue;
    const Work& work = found->second.work;
    // The worker may have gone on since its last heartbeat: only the time that it reported counts.
    const Seconds limit = work.usual > 0 ? std::max(limits.floor, limits.factor * work.usual) : limits.unknown;
    if (work.lasts > limit && now - found->second.seen < limits.floor)
      late.push_back({&found->second, work.lasts, limit});
  }
  std::vector<Hung> hung;
  if (generation.members.size() < 2) return hung;
  const double times = late.size() * 2 > generation.members.size() ? limits.shared : 1;
  for (const Late& l : late) {
    if (l.lasts <= times * l.limit) continue;
    const Work& work = l.worker->work;
    hung.push_back({l.worker->peer, fmt::format("hangs: at {} for {:.1f} s, which {}", work.what, l.lasts,
                                                work.usual > 0 ? fmt::format("takes {:.2g} s", work.usual)
                                                               : std::string("has not ended before"))});
  }
  return hung;
}

constexpr int64_t kForgotten = 1000;  // steps
constexpr int kMostDoublings = 10;
constexpr double kUsual = 3, kSlowestLink = 250e3;  // seconds, and bytes per second

Seconds Patience::at(int64_t completed) const {
  const bool forgotten = completed >= last_ + kForgotten;
  return first_ * static_cast<double>(1 << (forgotten ? 0 : std::min(times_, kMostDoublings)));
}

void Patience::lost(int64_t completed) {
  if (completed >= last_ + kForgotten) times_ = 0;
  ++times_;
  last_ = completed;
}

Seconds patience_for(int64_t bytes) { return kUsual + static_cast<double>(bytes) / kSlowestLink; }

std::optional<Hung> find_stuck(const Generation& generation, const Roster& roster, Seconds patience, Seconds now) {
  std::optional<Hung> first;
  for (const GenerationMember& m : generation.members) {
    const auto found = roster.find(m.peer);
    if (found == roster.end()) return std::nullopt;
    const Work& work = found->second.work;
    // An old heartbeat says nothing about the present.
    if (!work.what.empty() || work.idle <= patience || now - found->second.seen > patience / 2) return std::nullopt;
    if (!first && !work.misses.empty()) first = Hung{m.peer, work.misses};
  }
  return first;
}

}  // namespace elinvar
