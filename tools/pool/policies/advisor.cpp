#include "tools/pool/policies/advisor.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/pool/profiling/trials.h"

namespace elinvar::pool {

std::optional<Advice> advise(const Pool& pool, const Job& job, const Allocation& allocation, const WorkerShape& shape) {
  if (allocation.size() != 1) return {};
  const auto& [kind, most] = *allocation.begin();
  const Allocation present =
      job.running() && shape == job.shape ? allocation_of(pool, job.slots, job.shape) : Allocation{};
  if (!measured_in(job, allocation, shape)) {  // the full size first: the job is to have it anyway
    if (present == allocation) return Advice{most, kTrialSeconds, 0, fmt::format("measures {} workers", most)};
    return {};
  }
  for (int n = most / 2; n >= job.min_workers; n /= 2) {
    const Allocation trial{{kind, n}};
    const Rate rate = job.speed->rate(trial, shape);
    if (rate.samples <= 0 || measured_in(job, trial, shape) || rate.error < kSure) continue;
    const double full = job.speed->rate(allocation, shape).samples;
    const double cost = kTrialSeconds * std::max(0.0, full - rate.samples) +
                        change_of(job, allocation, trial, trial, shape).samples +
                        change_of(job, trial, trial, allocation, shape).samples;
    if (trials_cost(job.measured, job.costs) + cost > kTrialBudget * job.left()) return {};
    return Advice{n, kTrialSeconds, cost,
                  fmt::format("tries {} of {} workers for {:.0f} s: its speed there is known to {:.0f} % only", n, most,
                              kTrialSeconds, 100 * rate.error)};
  }
  return {};
}

Plan with_advice(const Pool& pool, Plan plan) {
  const std::vector<size_t> due = due_jobs(pool);
  for (size_t i = 0; i < plan.decisions.size(); ++i) {
    Decision& decision = plan.decisions[i];
    if (decision.slots.empty() || std::find(due.begin(), due.end(), i) != due.end()) continue;
    const Allocation allocation = allocation_of(pool, decision.slots, decision.shape);
    const std::optional<Advice> advice = advise(pool, pool.jobs[i], allocation, decision.shape);
    if (!advice || advice->workers >= workers(allocation)) continue;
    // `kept` are slots of the decision that the job has already.
    const int width = decision.shape.width;
    std::vector<Id> kept, fresh;
    for (size_t at = 0; at < decision.slots.size(); at += width) {
      const std::vector<Id>& has = pool.jobs[i].slots;
      const bool own =
          decision.shape == pool.jobs[i].shape && std::find(has.begin(), has.end(), decision.slots[at]) != has.end();
      std::vector<Id>& to = own ? kept : fresh;
      to.insert(to.end(), decision.slots.begin() + at, decision.slots.begin() + at + width);
    }
    kept.insert(kept.end(), fresh.begin(), fresh.end());
    kept.resize(static_cast<size_t>(advice->workers) * width);
    decision.slots = std::move(kept);
    decision.reason = advice->reason;
    decision.trial = true;
  }
  return plan;
}

}  // namespace elinvar::pool
