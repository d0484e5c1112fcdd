#pragma once
// The run status of a job, as its run directory shows it, whether or not its coordinator answers: from the files of
// elastic/run/term.h, elastic/ledger/events.h, tools/training/metrics.h, and result.json. Each look reads only what
// was added since the last one.
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tools/pool/profiling/rescale_costs.h"

namespace elinvar::pool {

struct RunStatus {
  bool alive = false;                // a coordinator has counted a beat lately
  std::string endpoint;              // of the coordinator
  std::string result;                // how it ended: "finished", "interrupted", "failed"; "": it has not
  std::string reason;                // of a failure
  std::string digest;                // of the state in which it ended
  int64_t step = 0, steps = 0;       // that are made, and of the whole run; 0: not known yet
  std::set<std::string> registered;  // names of the workers that have registered
  std::set<std::string> members;     // names of the workers that take part, or are about to
  // The present generation: its workers, its undisturbed steps, and the seconds that these took.
  int64_t generation = 0;
  int workers = 0;
  int64_t measured_steps = 0;
  double measured_seconds = 0, loss = 0;
  std::vector<StepRecord> turns;  // the first and the last step of the last generations, since its coordinator began
  // The validations of this generation, and the seconds by which they made steps longer.
  int64_t validations = 0;
  double validation_seconds = 0;
  std::string readers;  // what a worker decided last about those who read its data, and why; "": nothing
  // Seconds since 1970; 0: not yet. When its present coordinator began, the first step after that, and the end of the
  // last one, with what followed it but for the farewell.
  double coordinated_at = 0, first_step_at = 0, computed_at = 0;
};

class RunStatusReader {
 public:
  explicit RunStatusReader(std::filesystem::path run_directory) : path_(std::move(run_directory)) {}
  // `now`: seconds of any clock, which may be set. Files that cannot be read or understood are no news.
  const RunStatus& look(double now);

 private:
  // The lines of a file that have been added since it was looked at last; at first those in its last bytes.
  struct Tail {
    int64_t read = -1;
    bool whole = false;  // it was read from its beginning
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
  bool validates_ = false;                 // since the last step
  std::map<uint64_t, std::string> names_;  // of workers, by their peer id
};

}  // namespace elinvar::pool
