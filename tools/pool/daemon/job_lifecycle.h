#pragma once
// Moves the open jobs from state to state: a job waits, runs, and waits again or is finished, failed or cancelled,
// depending on its run directory and on how its processes ended.
//
// If the coordinator of a job dies, one of the job's workers starts another (elastic/PROTOCOL.md). Only a job that is
// left without a coordinator is started again with --resume, after a back-off that grows with each failure without
// progress. A job that can never run (its configuration is wrong, or its ledger is lost) fails at once.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/pool/daemon/planner.h"
#include "tools/pool/daemon/world.h"

namespace elinvar::pool {

class JobLifecycle {
 public:
  JobLifecycle(Store& store, World& world, const SchedulerOptions& options, const Placement& placement,
               HostBackoff& backoff, ProcessTable& processes, Profiler& profiler, Planner& planner);

  void load(double now);  // reads the open jobs; requests a plan for new ones and for those whose back-off is over
  std::vector<JobRecord>& jobs() { return jobs_; }

  void process_ended(const ProcessRecord& process, double now);
  void observe(JobRecord& job, double now);  // reads its run directory and acts on it
  // Schedules another attempt, or fails the job after too many failures without progress.
  void fail_once(JobRecord& job, const std::string& reason, double now);
  void drop_ended_jobs();  // from jobs()
  void clock_was_set_back();

 private:
  struct Watch {                         // an open job as observed
    std::optional<double> silent_since;  // when its coordinator fell silent
    std::optional<double> progress_noted;
    std::optional<int> coordinator_exit;  // exit code of its last coordinator
    bool had_worker = false;              // one of its workers has registered
    int failed_starts = 0;                // workers in a row that ended before they registered
    std::string unrunnable;               // why it can never run; "": it can
  };
  JobRecord* find(Id job);
  void set_right(JobRecord& job, double now);
  void worker_ended(const ProcessRecord& worker, double now);
  void worker_failed_to_start(const ProcessRecord& worker, const std::string& host, const std::string& message,
                              double now);
  bool nobody_ever_started(Id job);
  void note_progress(JobRecord& job, const RunStatus& status, double now);
  void note_registered(JobRecord& job, const RunStatus& status);
  void conclude(JobRecord& job, const RunStatus& status, double now);
  void enter(JobRecord& job, JobRecord::State state, const std::string& reason, double now);

  Store& store_;
  World& world_;
  const SchedulerOptions& options_;
  const Placement& placement_;
  HostBackoff& backoff_;
  ProcessTable& processes_;
  Profiler& profiler_;
  Planner& planner_;
  std::vector<JobRecord> jobs_;
  std::map<Id, Watch> watches_;
  std::optional<double> began_;  // ends before this time went unobserved
  int64_t kernel_kills_, kernel_kills_before_;
};

}  // namespace elinvar::pool
