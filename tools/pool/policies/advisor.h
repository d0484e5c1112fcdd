#pragma once
// Chooses which size of a job to measure next, so that its speed is known well enough for plans.
//
// This follows MalleTrain's job profiling advisor. Sizes at which a job runs anyway are measured without a trial. If
// the prediction for another size is uncertain, the job runs at that size for a few steps. Trials go from large sizes
// to small ones, because a leaving worker delays the others less than a joining one, and a job gets its largest share
// when it starts. The cost of a trial is the work that the job loses meanwhile, including both changes.
#include <optional>
#include <string>

#include "tools/pool/plan/state.h"

namespace elinvar::pool {

struct Advice {
  int workers = 0;     // workers, of the kind and shape that the plan gives the job
  double seconds = 0;  // duration
  double cost = 0;     // in samples
  std::string reason;
};

// Returns what to try for a job that gets `allocation` in `shape`, with at most as many workers. Returns null if its
// speeds are certain enough, if it has more than one kind, or if a trial would cost more than it can gain.
std::optional<Advice> advise(const Pool& pool, const Job& job, const Allocation& allocation, const WorkerShape& shape);

// Applies advice to a plan: jobs that should be tried at a smaller size get that size. The remaining slots stay free
// for them; the daemon plans again when the trial is over.
Plan with_advice(const Pool& pool, Plan plan);

}  // namespace elinvar::pool
