#include <nlohmann/json.hpp>
#include "tests/elastic/simulator/simulation.h"

namespace elinvar {

SimulationResult Simulation::run() {
  try {
    resume();
    for (int i = 0; i < s_.faults; ++i)
      at(uniform(0.0, 1.0 + 0.12 * static_cast<double>(s_.steps)), [this] { fault(); });
    for (int i = 0; i < s_.flips; ++i) at(uniform(0.0, 0.12 * static_cast<double>(s_.steps)), [this] { arm(); });
    for (int i = 0; i < s_.rearrangements; ++i)
      at(uniform(0.0, 0.15 * static_cast<double>(s_.steps)), [this] { rearrange(); });
    if (s_.orphaned > 0) orphan();
    if (s_.orphaned > 1)
      at(uniform(2, 4), [this] {
        for (const auto& [term, h] : heads_)
          if (h->alive) die(*h, "kill");
        for (const auto& [peer, p] : workers_)
          if (p->alive) die(*p, "kill");
        resume();
        orphan();
      });
    if (s_.hang_at >= 0) at(s_.hang_at, [this] { hang(*workers_.begin()->second); });
    at(kFaultsEnd, [this] { mend(); });
    at(1, [this] { look_after(); });
    while (!events_.empty() && !done_) {
      const Event event = events_.top();
      events_.pop();
      if (result_.messages > 300000) violate("{} messages: {}", result_.messages, where());
      if (event.time > kDeadline) violate("no end in {} simulated seconds: {}", kDeadline, where());
      now_ = event.time;
      event.what();
      if (!wrong_in_group_.empty()) violate("{}", wrong_in_group_);
    }
    if (!done_) violate("nothing happens any more: {}", where());
  } catch (const std::exception& error) {
    result_.violation = fmt::format("t={:.3f}: {}", now_, error.what());
  }
  result_.seconds = now_;
  return std::move(result_);
}

std::string Simulation::where() {
  std::string text = fmt::format("{} steps in the ledger, checkpoint of step {}", ledger_.size(), saved_step_);
  for (const auto& [term, head] : heads_)
    if (head->alive) text += fmt::format("\n  term {}: {}", term, head->coordinator->status(now_).dump());
  for (const auto& [peer, p] : workers_) {
    if (!p->alive) continue;
    const MemberPosition& at = p->member->position();
    text += fmt::format(
        "\n  {}: generation {} step {} completed {} active {} fenced {} next {} busy {} idle {:.1f} misses '{}'", peer,
        at.number(), at.step, at.completed, at.active(), at.fenced(), static_cast<int>(p->member->next()), p->busy,
        now_ - p->idle_since, p->member->missing());
  }
  return text;
}

SimulationResult simulate(const Schedule& schedule) { return Simulation(schedule).run(); }

}  // namespace elinvar
