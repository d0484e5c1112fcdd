#include "elastic/protocol/plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace elinvar {
namespace {

// Returns why the members should get other shares, or "".
std::string reason_to_reassign(const Generation& current, const Roster& roster, const PlanLimits& limits) {
  const std::vector<double> speeds = speeds_of(current.members, roster);
  const std::vector<ReplicaPlace> best = deal_replicas(limits.replica, speeds);
  std::vector<ReplicaPlace> places;
  std::vector<std::vector<Interval>> shares;  // of replicas
  for (const GenerationMember& m : current.members) {
    places.push_back(current.shards > 0 ? m.place : ReplicaPlace{.replica = static_cast<int>(places.size())});
    if (static_cast<size_t>(places.back().replica) == shares.size()) shares.push_back(m.share);
  }
  const std::vector<double> now = replica_speeds(std::max(current.shards, 1), places, speeds);
  const std::vector<double> then = replica_speeds(limits.replica.shards, best, speeds);
  const double before = step_time(shares, now), after = step_time(assign(limits.vranks, then), then);
  if (before < after * limits.reassign_gain) return "";
  return fmt::format("other shares: a step takes {:.0f} % of the time", 100 * after / before);
}

// Returns whether a worker keeps some of the optimizer's state for all.
bool keeps(const Generation& current, int id) {
  if (!current.sharding) return false;
  const std::vector<int>& ids = current.sharding->keepers.ids;
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

std::optional<Plan> plan(const Generation& current, const Roster& roster, const Wishes& wishes,
                         const PlanLimits& limits, bool may_reassign) {
  Plan plan{.members = {}, .joining = {}, .stop = !wishes.stop.empty(), .checkpoint = wishes.checkpoint, .reason = {}};
  const auto because = [&](const std::string& what) { plan.reason += (plan.reason.empty() ? "" : ", ") + what; };
  std::vector<PeerId> leaving;
  for (const GenerationMember& m : current.members) {
    const Worker& worker = roster.at(m.peer);
    if (!worker.draining) plan.members.push_back(m.peer);
    else if (keeps(current, worker.id)) leaving.push_back(m.peer);
    else because(fmt::format("worker {} leaves", worker.id));
  }
  for (const auto& [peer, w] : roster) {
    if (w.state != Worker::State::ready || w.draining || static_cast<int>(plan.members.size()) >= limits.max_workers)
      continue;
    plan.members.push_back(peer);
    plan.joining.push_back(peer);
    because("a worker joins");
  }
  // A member that keeps state first gives it to others, in a generation in which it keeps nothing, and then leaves.
  const bool others = !plan.members.empty();
  for (size_t i = 0; others && i < leaving.size(); ++i) {
    because(fmt::format("worker {} hands over the state that it keeps", roster.at(leaving[i]).id));
    plan.members.push_back(leaving[i]);
  }
  if (plan.stop) because(wishes.stop);
  if (plan.members.empty()) {
    for (const auto& [peer, w] : roster)
      if (w.state == Worker::State::receiving || w.state == Worker::State::joining) return std::nullopt;
    plan.stop = true;
    for (const PeerId peer : leaving) because(fmt::format("worker {} leaves", roster.at(peer).id));
    for (const GenerationMember& m : current.members) plan.members.push_back(m.peer);
  }
  if (plan.checkpoint) because("a checkpoint was asked for");
  plan.checkpoint = plan.checkpoint || plan.stop;
  if (plan.reason.empty() && may_reassign) plan.reason = reason_to_reassign(current, roster, limits);
  if (plan.reason.empty()) return std::nullopt;
  return plan;
}

}  // namespace elinvar
