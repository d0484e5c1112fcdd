#pragma once
// Measures the speed of a job and the costs of its changes, by the times of its steps and of what was done to it. The
// daemon does this as jobs run, and `pool measure` makes tables of it (sim/table.h).
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tools/pool/store/store.h"

namespace elinvar::pool {

struct StepRecord {
  double time = 0;  // when it was done
  int workers = 0;
  int64_t generation = 0;  // elastic/step/generation.h
  bool validates = false;  // the state before it was validated meanwhile

  bool goes_on(const StepRecord& before) const { return generation == before.generation && workers == before.workers; }
};

// Reads the steps in a run's metrics.jsonl; skips other lines.
std::vector<StepRecord> read_steps(const std::filesystem::path& run_directory);

struct RescaleEvent {
  enum What { kStart, kJoin, kLeave, kDeath, kStop } what = kStart;
  double at = 0;    // when it was decided; of a death: when the worker died
  double free = 0;  // leave, stop: when the slots were free
};

// Returns the mean seconds of a step for each number of workers, without the first two steps of each generation and
// those during a validation.
std::map<int, double> step_seconds(std::span<const StepRecord> steps);

// Returns what was done to a job, by the processes that it has had.
std::vector<RescaleEvent> rescale_events(std::span<const ProcessRecord> processes);

// The median of each kind of change, kUnmeasured where there was none; nothing takes less than a millisecond. `usual`:
// the seconds of a step for each number of workers. Of the steps the first and the last one of each generation suffice.
// checkpoint_every is not seen here.
RescaleCosts measured_costs(std::span<const StepRecord> steps, const std::map<int, double>& usual,
                            std::span<const RescaleEvent> changes);

// "a join takes 2.1 s (others wait for 0.18 s), .." of those that were seen.
std::string text_of(const RescaleCosts& seen);

}  // namespace elinvar::pool
