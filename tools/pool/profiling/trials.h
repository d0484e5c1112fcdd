#pragma once
// Trials: short runs of a job at another size or in another worker shape, only to measure its speed there.
#include <span>

#include "tools/pool/plan/state.h"

namespace elinvar::pool {

constexpr double kSure = 0.05;         // a prediction with a smaller error needs no trial
constexpr double kTrialSeconds = 10;   // a dozen steps of usual jobs, not counting those during the change
constexpr double kTrialBudget = 0.05;  // the fraction of a job's remaining work that all its trials may cost

// Whether the job was at this size in this shape for long enough to know its speed there.
bool measured_in(const Job& job, const Allocation& allocation, const WorkerShape& shape);

// Returns what a job's trials cost, in samples: the work that it lost meanwhile, and the changes there and back.
double trials_cost(std::span<const Measurement> measured, const RescaleCosts& costs);

}  // namespace elinvar::pool
