#include "elastic/protocol/plan.h"

#include <fmt/format.h>

namespace elinvar {
namespace {

// Returns why the members should get other shares, or "".
std::string reason_to_reassign(const Generation& current, const Roster& roster, const PlanLimits& limits) {
  std::vector<std::vector<Interval>> shares;
  for (const GenerationMember& m : current.members) shares.push_back(m.share);
  const std::vector<double> speeds = speeds_of(current.members, roster);
  const double before = step_time(shares, speeds), after = step_time(assign(limits.vranks, speeds), speeds);
  if (before < after * limits.reassign_gain) return "";
  return fmt::format("other shares: a step takes {:.0f} % of the time", 100 * after / before);
}

}  // namespace

std::optional<Plan> plan(const Generation& current, const Roster& roster, const Wishes& wishes,
                         const PlanLimits& limits, bool may_reassign) {
  Plan plan{.members = {}, .joining = {}, .stop = !wishes.stop.empty(), .checkpoint = wishes.checkpoint, .reason = {}};
  const auto because = [&](const std::string& what) { plan.reason += (plan.reason.empty() ? "" : ", ") + what; };
  for (const GenerationMember& m : current.members) {
    const Worker& worker = roster.at(m.peer);
    if (worker.draining) because(fmt::format("worker {} leaves", worker.id));
    else plan.members.push_back(m.peer);
  }
  for (const auto& [peer, w] : roster) {
    if (w.state != Worker::State::ready || w.draining || static_cast<int>(plan.members.size()) >= limits.max_workers)
      continue;
    plan.members.push_back(peer);
    plan.joining.push_back(peer);
    because("a worker joins");
  }
  if (plan.stop) because(wishes.stop);
  if (plan.members.empty()) {
    for (const auto& [peer, w] : roster)
      if (w.state == Worker::State::receiving || w.state == Worker::State::joining) return std::nullopt;
    plan.stop = true;
    for (const GenerationMember& m : current.members) plan.members.push_back(m.peer);
  }
  if (plan.checkpoint) because("a checkpoint was asked for");
  plan.checkpoint = plan.checkpoint || plan.stop;
  if (plan.reason.empty() && may_reassign) plan.reason = reason_to_reassign(current, roster, limits);
  if (plan.reason.empty()) return std::nullopt;
  return plan;
}

}  // namespace elinvar
