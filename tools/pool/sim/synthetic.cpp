#include "tools/pool/sim/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tensor/base/check.h"

namespace elinvar::pool {

std::vector<TraceJob> philly_like(uint64_t seed, const Arrivals& arrivals, const Table& table) {
  std::vector<std::string> models = arrivals.models;
  if (models.empty())
    for (const auto& [name, model] : table) models.push_back(name);
  Dice dice(seed, "arrivals");
  std::vector<TraceJob> jobs;
  double now = 0;
  while (static_cast<int>(jobs.size()) < arrivals.jobs) {
    // Arrivals are three times as frequent at noon as at midnight, by thinning.
    now += dice.exponential(arrivals.between / 1.5);
    if (dice.uniform() > (2 - std::cos(2 * std::numbers::pi * (now / 86400 + 0.35))) / 3) continue;
    TraceJob job;
    job.submitted = now;
    job.model = models[dice.below(static_cast<int>(models.size()))];
    const Model& model = table.at(job.model);
    double at = dice.uniform();
    for (const auto& [size, often] : arrivals.sizes) {
      job.fixed = size;
      if ((at -= often) < 0) break;
    }
    job.max = std::min(std::max(job.fixed, static_cast<int>(job.fixed * arrivals.grow)), model.virtual_ranks);
    job.fixed = std::min(job.fixed, job.max);
    job.min = std::max(1, static_cast<int>(job.fixed / arrivals.shrink));
    const double time = std::clamp(dice.lognormal(arrivals.median_time, arrivals.sigma), 60.0, arrivals.longest);
    double rate = 0;
    if (!arrivals.asked_kind.empty()) {
      const std::string& asked = arrivals.asked_kind[dice.below(static_cast<int>(arrivals.asked_kind.size()))];
      job.kinds = {asked};
      for (const std::string& kind : arrivals.asked_kind)
        if (std::find(job.kinds.begin(), job.kinds.end(), kind) == job.kinds.end()) job.kinds.push_back(kind);
      for (const WorkerShape& shape : model.shapes)
        if (rate == 0) rate = model.speed->rate({{asked, job.fixed}}, shape).samples;
    }
    check(rate > 0, "the table of speeds has no rate of {} on the kinds asked for", job.model);
    job.samples = std::max(1.0, std::round(rate * time));
    jobs.push_back(std::move(job));
  }
  return jobs;
}

double idle_fragment(Dice& dice) { return dice.exponential(dice.uniform() < 0.653 ? 417 : 2688); }

std::vector<TraceHost> fragments(uint64_t seed, int nodes, const std::string& kind, double seconds, double idle,
                                 double notice) {
  Dice dice(seed, "fragments");
  const double busy = 1205 * (1 - idle) / idle;
  std::vector<TraceHost> hosts;
  for (int node = 0; node < nodes; ++node) {
    // The trace begins at random inside a fragment or a busy time; the rest of a busy time is again exponential.
    double now = dice.uniform() < idle ? 0 : dice.exponential(busy);
    while (now < seconds) {
      const double until = now + std::max(1.0, idle_fragment(dice));
      hosts.push_back({fmt::format("node-{}", node), kind, 1, now, until, notice});
      now = until + std::max(1.0, dice.exponential(busy));
    }
  }
  return hosts;
}

std::vector<TraceHost> cluster(uint64_t seed, int hosts, int slots, const std::string& kind, double seconds,
                               double between_failures) {
  Dice dice(seed, "failures of " + kind);
  std::vector<TraceHost> periods;
  for (int host = 0; host < hosts; ++host) {
    const std::string name = fmt::format("{}-{}", kind, host);
    double now = 0;
    while (now < seconds) {
      const double until = between_failures == kNever ? kNever : now + dice.exponential(between_failures);
      periods.push_back({name, kind, slots, now, until < seconds ? until : kNever, 0});
      now = until + 120 + dice.exponential(600);
    }
  }
  return periods;
}

}  // namespace elinvar::pool
