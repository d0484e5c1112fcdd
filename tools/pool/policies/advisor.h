#pragma once
// Chooses which size of a job to measure next, so that its speed is known well enough for plans.
//
// After MalleTrain's job profiling advisor. Whatever happens is measured. If the prediction for a size is still
// uncertain, the job runs at that size for a few steps, from large to small, because a leaving worker delays the others
// less than a joining one, and a job gets its largest share when it starts. The cost of a trial is the work that the
// job loses meanwhile, both changes included.
#include <optional>
#include <span>

#include "tools/pool/plan/state.h"

namespace elinvar::pool {

struct Advice {
  int workers = 0;     // of the kind and shape that the plan gives the job
  double seconds = 0;  // duration
  double cost = 0;     // in samples
  std::string reason;
};

constexpr double kSure = 0.05;         // a prediction with a smaller error needs no trial
constexpr double kTrialSeconds = 10;   // a dozen steps of usual jobs, after those of the change
constexpr double kTrialBudget = 0.05;  // the fraction of a job's remaining work that all its trials may cost

// Whether the job was at this size in this shape for long enough to know its speed there.
bool measured_in(const Job& job, const Allocation& allocation, const WorkerShape& shape);

// Returns what to try for a job that gets `allocation` in `shape`, with at most as many workers. Returns null if its
// speeds are certain enough, if it has more than one kind, or if a trial would cost more than it can gain.
std::optional<Advice> advise(const Pool& pool, const Job& job, const Allocation& allocation, const WorkerShape& shape);

// Returns the samples that a job's trials cost: the work that it lost meanwhile, and the changes there and back.
double trials_cost(std::span<const Measurement> measured, const RescaleCosts& costs);

// Applies advice to a plan: jobs that should be tried at a smaller size get that size. The remaining slots stay free
// for them; the daemon plans again when the trial is over.
Plan with_advice(const Pool& pool, Plan plan);

}  // namespace elinvar::pool
