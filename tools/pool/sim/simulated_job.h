#pragma once
// A simulated job: as policies see it, as it really is, and what became of it.
#include <memory>

#include "tools/pool/profiling/speed.h"
#include "tools/pool/sim/progress.h"
#include "tools/pool/sim/simulate.h"

namespace elinvar::pool {

struct SimulatedJob {
  Job job;  // as the policy sees it
  std::shared_ptr<const Speed> truth;
  std::shared_ptr<const FittedSpeed> similar;  // fitted to earlier jobs of its model
  double reference = 0;
  Allocation allocation;  // of its current slots
  Progress progress;
  double promised = 0, promised_error = 0;  // predicted when it got its allocation
  bool trial = false;                       // its allocation is a trial
  size_t fitted_sizes = 0;                  // number of measurements when its speed was last fitted
  double fitted_seconds = 0;                // seconds of the last of these
  double over_at = kNever;                  // when it ends, once all is computed
  bool here = false, ended = false;
  JobOutcome outcome;
};

// Throws UsageError if the table has no rate of its model on the kinds that it may use.
SimulatedJob simulated_job(const Trace& trace, const TraceJob& traced, Id id, const Table& table, Belief belief);

}  // namespace elinvar::pool
