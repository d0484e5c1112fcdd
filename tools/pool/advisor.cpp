#include "tools/pool/advisor.h"

#include <fmt/format.h>

#include <algorithm>

namespace elinvar::pool {

bool measured_in(const Job& job, const Mix& mix, const Form& form) {
  double seconds = 0;
  for (const Measurement& m : job.measured)
    if (m.workers == mix && m.form == form) seconds += m.seconds;
  return seconds >= kTrialSeconds;
}

double trials_cost(std::span<const Measurement> measured, const RescaleCosts& costs) {
  double best = 0, samples = 0;
  for (const Measurement& m : measured) best = std::max(best, m.rate);
  const Form* before = nullptr;
  for (const Measurement& m : measured) {
    const bool anew = before != nullptr && *before != m.form;  // it was stopped and started for it
    before = &m.form;
    if (!m.trial) continue;
    samples += (std::min(m.seconds, kTrialSeconds) + (anew ? 0 : costs.join)) * (best - m.rate) +
               (anew ? 2 * (costs.stop + costs.start) : costs.leave_stall + costs.join_stall) * best;
  }
  return samples;
}

std::optional<Advice> advise(const Pool& pool, const Job& job, const Mix& mix, const Form& form) {
  if (mix.size() != 1) return {};
  const auto& [kind, most] = *mix.begin();
  const Mix present = job.running() && form == job.form ? mix_of(pool, job.slots, job.form) : Mix{};
  if (!measured_in(job, mix, form)) {  // the largest first: it is what the job is to have anyway
    if (present == mix) return Advice{most, kTrialSeconds, 0, fmt::format("measures {} workers", most)};
    return {};
  }
  for (int n = most / 2; n >= job.min_workers; n /= 2) {
    const Mix trial{{kind, n}};
    const Rate rate = job.speed->rate(trial, form);
    if (rate.samples <= 0 || measured_in(job, trial, form) || rate.error < kSure) continue;
    const double full = job.speed->rate(mix, form).samples;
    const double cost = kTrialSeconds * std::max(0.0, full - rate.samples) +
                        change_of(job, mix, trial, trial, form).samples +
                        change_of(job, trial, trial, mix, form).samples;
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
    const Mix mix = mix_of(pool, decision.slots, decision.form);
    const std::optional<Advice> advice = advise(pool, pool.jobs[i], mix, decision.form);
    if (!advice || advice->workers >= workers(mix)) continue;
    // Of the slots that it is to have, those that it has already.
    const int width = decision.form.width;
    std::vector<Id> kept, fresh;
    for (size_t at = 0; at < decision.slots.size(); at += width) {
      const std::vector<Id>& has = pool.jobs[i].slots;
      const bool own =
          decision.form == pool.jobs[i].form && std::find(has.begin(), has.end(), decision.slots[at]) != has.end();
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
