#pragma once
// A job of a simulation: as policies see it, as it really is, and what has become of it.
#include <memory>

#include "tools/pool/profiling/speed.h"
#include "tools/pool/sim/progress.h"
#include "tools/pool/sim/simulate.h"

namespace elinvar::pool {

struct SimulatedJob {
  Job job;  // as the policy sees it
  std::shared_ptr<const Speed> truth;
  std::shared_ptr<const FittedSpeed> similar;  // what its model's jobs before it have taught
  double reference = 0;
  Allocation allocation;  // of its slots
  Progress progress;
  double promised = 0, promised_error = 0;  // predicted for its allocation, when it got it
  bool trial = false;                       // its allocation is a trial
  size_t fitted_sizes = 0;                  // measurements when its speed was last fitted
  double fitted_seconds = 0;                // seconds of the last one of these
  double over_at = kNever;                  // all is computed, and it will have ended then
  bool here = false, ended = false;
  JobOutcome outcome;
};

// Throws UsageError if the table has no rate of its model on the kinds that it may use.
SimulatedJob simulated_job(const Trace& trace, const TraceJob& traced, Id id, const Table& table, Belief belief);

}  // namespace elinvar::pool
