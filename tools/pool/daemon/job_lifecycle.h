#pragma once
// The open jobs, and their way from one state to the next: a job waits, runs, and waits again or is finished, failed
// or cancelled, by what its run directory shows and by how its processes ended.
//
// The coordinator of a job may die: one of its workers starts another (elastic/PROTOCOL.md). Only when nobody
// coordinates it any more is the job started again with --resume, after a back-off that grows with each failure without
// progress. A job that cannot run at all (its configuration is wrong, or its ledger is lost) fails at once.
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

  void load(double now);  // reads the open jobs; a new one, and one whose back-off is over, ask for a plan
  std::vector<JobRecord>& jobs() { return jobs_; }

  void process_ended(const ProcessRecord& process, double now);
  void observe(JobRecord& job, double now);                               // by its run directory
  void fail_once(JobRecord& job, const std::string& reason, double now);  // it is tried again, or has failed for good
  void drop_ended_jobs();                                                 // from jobs()
  void clock_was_set_back();

 private:
  struct Watch {                         // what is remembered of an open job
    std::optional<double> silent_since;  // nobody coordinates it
    std::optional<double> progress_noted;
    std::optional<int> coordinator_exit;  // how its last coordinator ended
    bool had_worker = false;              // that registered
    int failed_starts = 0;                // workers in a row that ended before they had registered
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
  std::optional<double> began_;  // an end before that was not seen
  int64_t kernel_kills_, kernel_kills_before_;
};

}  // namespace elinvar::pool
