#include "tools/pool/profiling/trials.h"

#include <algorithm>

namespace elinvar::pool {

bool measured_in(const Job& job, const Allocation& allocation, const WorkerShape& shape) {
  double seconds = 0;
  for (const Measurement& m : job.measured)
    if (m.workers == allocation && m.shape == shape) seconds += m.seconds;
  return seconds >= kTrialSeconds;
}

double trials_cost(std::span<const Measurement> measured, const RescaleCosts& costs) {
  double best = 0, samples = 0;
  for (const Measurement& m : measured) best = std::max(best, m.rate);
  const WorkerShape* before = nullptr;
  for (const Measurement& m : measured) {
    const bool anew = before != nullptr && *before != m.shape;  // it was restarted for this trial
    before = &m.shape;
    if (!m.trial) continue;
    samples += (std::min(m.seconds, kTrialSeconds) + (anew ? 0 : costs.join)) * (best - m.rate) +
               (anew ? 2 * (costs.stop + costs.start) : costs.leave_stall + costs.join_stall) * best;
  }
  return samples;
}

}  // namespace elinvar::pool
