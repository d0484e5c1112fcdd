#pragma once
// The run status of a job as its run directory shows it, whether or not its coordinator answers. Read from the files of
// elastic/run/term.h, elastic/ledger/events.h and tools/training/metrics.h, and from result.json. Each look reads only
// what was added since the last one.
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tools/pool/profiling/rescale_costs.h"

namespace elinvar::pool {

struct RunStatus {
  bool alive = false;                // a coordinator has sent a heartbeat recently
  std::string endpoint;              // of the coordinator
  std::string result;                // how the run ended: "finished", "interrupted", "failed"; "": it has not
  std::string reason;                // why it failed
  std::string digest;                // of the final state
  int64_t step = 0, steps = 0;       // steps made, and steps of the whole run; 0: not known yet
  std::set<std::string> registered;  // names of the registered workers
  std::set<std::string> members;     // names of the workers that take part or are about to
  // The current generation: its workers, its undisturbed steps, and the seconds that these took.
  int64_t generation = 0;
  int workers = 0;
  int64_t measured_steps = 0;
  double measured_seconds = 0, loss = 0;
  std::vector<StepRecord> turns;  // first and last step of recent generations, since the coordinator started
  // The validations of this generation, and the seconds that they added to steps.
  int64_t validations = 0;
  double validation_seconds = 0;
  std::string readers;  // the workers' last decision about reader threads, with the reason; "": none
  // When the current coordinator started, when the first step after that ended, and when the last step and the work
  // after it ended, except for the workers' farewell. Seconds since 1970; 0: not yet.
  double coordinated_at = 0, first_step_at = 0, computed_at = 0;
};

class RunStatusReader {
 public:
  explicit RunStatusReader(std::filesystem::path run_directory) : path_(std::move(run_directory)) {}
  // `now`: seconds on any clock; it may be set back. Files that cannot be read or parsed are skipped.
  const RunStatus& look(double now);

 private:
  // Reads the lines that were added to a file since the last look; at first those in its last bytes.
  struct Tail {
    int64_t read = -1;
    bool whole = false;  // read from its beginning
    std::string rest = {};
    std::string more(const std::filesystem::path& path, int64_t at_first);
  };
  void look_at_term(double now);
  void look_at_events();
  void look_at_metrics();
  void look_at_members();
  void look_at_result();
  void turn(const StepRecord& step);
  void validated(double seconds);
  double usual_step() const;  // seconds

  std::filesystem::path path_;
  RunStatus status_;
  Tail events_, metrics_;
  int64_t term_ = 0, beats_ = -1;
  double beaten_ = 0, last_time_ = 0;
  int64_t steps_of_generation_ = 0;
  bool validates_ = false;                 // a validation was recorded since the last step
  std::map<uint64_t, std::string> names_;  // of workers, by peer id
};

}  // namespace elinvar::pool
