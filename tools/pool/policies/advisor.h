#pragma once
// Which size of a job to look at next, so that its speed is known well enough for the plans.
//
// After MalleTrain's job profiling advisor: what happens anyway is measured anyway; where that leaves the prediction of
// a size unsure the job runs at it for a few steps, from large to small, since a worker that leaves holds the others up
// less than one that joins, and a job gets its largest share when it starts. A trial is charged: all that the job does
// less than it would have done meanwhile, both changes included.
#include <optional>
#include <span>

#include "tools/pool/plan/state.h"

namespace elinvar::pool {

struct Advice {
  int workers = 0;     // of the kind and shape that the job has by the plan
  double seconds = 0;  // for so long
  double cost = 0;     // samples
  std::string reason;
};

constexpr double kSure = 0.05;         // a prediction with a smaller error needs no trial
constexpr double kTrialSeconds = 10;   // a dozen steps of usual jobs, after those of the change
constexpr double kTrialBudget = 0.05;  // the part of a job's remaining work that all its trials may cost

// Whether the job was at this size in this shape for long enough to know its speed there.
bool measured_in(const Job& job, const Allocation& allocation, const WorkerShape& shape);

// What to try with a job that is to have `allocation` in `shape`, at most so many workers; nothing if the speeds are
// sure enough, if it has more than one kind, or if it would cost more than it can bring.
std::optional<Advice> advise(const Pool& pool, const Job& job, const Allocation& allocation, const WorkerShape& shape);

// Samples that a job's trials took from it: what it did less, and the changes there and back.
double trials_cost(std::span<const Measurement> measured, const RescaleCosts& costs);

// A plan with advice: jobs that should be tried at a smaller size than they are to have get that. The slots left over
// stay free for them; the daemon asks again when the trial is over.
Plan with_advice(const Pool& pool, Plan plan);

}  // namespace elinvar::pool
