// The simulator: a person asks for other arrangements while the job trains.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/elastic/simulator/simulation.h"

namespace elinvar {

// Returns another arrangement, of which about half of the entries are those of `from`.
Arrangement Simulation::any_arrangement(Arrangement from) {
  if (pick(2) == 0) from.zero = pick(most_.zero + 1);
  if (pick(2) == 0) from.copies = 1 + pick(most_.copies);
  if (pick(2) == 0) from.tp = 1 + pick(most_.tp);
  if (pick(2) == 0) from.pp = 1 + pick(most_.pp);
  return from;
}

// The job's arrangement as a worker hears of it that asks now. Another one may have replaced it before the worker says
// hello.
Arrangement Simulation::described() {
  const JobState& job = head()->coordinator->job();
  Arrangement arrangement = job.arrangement;
  arrangement.zero = job.zero_of_newcomers();
  return arrangement;
}

void Simulation::rearrange() {
  Head* h = head();
  if (!h || now_ < h->stalled_until) return;
  const JobState& job = h->coordinator->job();
  const Arrangement wanted = any_arrangement(job.wanted ? job.wanted->arrangement : job.arrangement);
  log("a person asks for " + to_string(wanted));
  if (const std::string error = h->coordinator->arrange(wanted, now_); !error.empty())
    violate("another arrangement is refused: {}", error);
  flush(*h);
}

// Counts the changes that a record makes.
void Simulation::count_changes(const Generation& g) {
  if (records_.empty()) return;
  result_.rearranged += g.arrangement != records_.rbegin()->second.arrangement;
  if (!g.sharding || form_of(g.sharding->zero) == form_of(g.sharding->zero_before)) return;
  ++result_.reforms;
  result_.reforms_behind_fence += g.first_step >= 0;
}

// A record can be read again, and each bucket has a provider among its members.
void Simulation::check_sharding(const Generation& g) const {
  const Generation read = generation_from(nlohmann::json::parse(to_json(g).dump()));
  if (read.sharding != g.sharding || read.arrangement != g.arrangement)
    violate("generation {} is recorded with another arrangement", g.number);
  if (!g.sharding) return;
  const std::vector<int> providers = providers_of(*g.sharding, buckets_.count(), g.ids());
  if (std::ranges::count(providers, 0) > 0) violate("generation {} lacks the state of some bucket", g.number);
}

}  // namespace elinvar
