#pragma once
// Measures the speed of a job and the costs of its changes, from the times of its steps and the history of its
// processes. The daemon does this while jobs run; `pool measure` makes tables of the results (sim/table.h).
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tools/pool/store/process_records.h"

namespace elinvar::pool {

struct StepRecord {
  double time = 0;  // when it ended
  int workers = 0;
  int64_t generation = 0;  // elastic/step/generation.h
  bool validates = false;  // the previous state was validated during the step

  bool goes_on(const StepRecord& before) const { return generation == before.generation && workers == before.workers; }
};

// Reads the steps in a run's metrics.jsonl; skips other lines.
std::vector<StepRecord> read_steps(const std::filesystem::path& run_directory);

struct RescaleEvent {
  enum What { kStart, kJoin, kLeave, kDeath, kStop } what = kStart;
  double at = 0;    // time of the decision; death: when the worker died
  double free = 0;  // leave, stop: when the slots became free
};

// Returns the mean seconds per step for each number of workers, without the first two steps of each generation and
// those during a validation.
std::map<int, double> step_seconds(std::span<const StepRecord> steps);

// Returns the changes of a job, derived from the processes that it has had.
std::vector<RescaleEvent> rescale_events(std::span<const ProcessRecord> processes);

// Returns the median cost of each kind of change, at least a millisecond; kUnmeasured if there was none. `usual`:
// seconds per step for each number of workers. `steps` needs only the first and last one of each generation. Does not
// measure checkpoint_every.
RescaleCosts measured_costs(std::span<const StepRecord> steps, const std::map<int, double>& usual,
                            std::span<const RescaleEvent> changes);

// Describes the measured costs: "a join takes 2.1 s (others wait for 0.18 s), ..".
std::string text_of(const RescaleCosts& seen);

}  // namespace elinvar::pool
