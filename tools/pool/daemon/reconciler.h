#pragma once
// Reconciles the processes of jobs with what the plan allocates to them: starts coordinators and workers, drains
// workers whose slots go to others, and stops jobs. Nothing is undone: what a plan wants no more is asked to leave.
//
// A job keeps its state in its workers. So the last ones that have it stay until a successor has registered, unless
// their machine is about to go; and a job whose slots all go to others, with none to go on to, stops with a checkpoint.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/pool/daemon/job_lifecycle.h"

namespace elinvar::pool {

class Reconciler {
 public:
  Reconciler(Store& store, World& world, const SchedulerOptions& options, const Inventory& inventory,
             const Placement& placement, HostBackoff& backoff, ProcessTable& processes, Planner& planner,
             JobLifecycle& lifecycle)
      : store_(store),
        world_(world),
        options_(options),
        inventory_(inventory),
        placement_(placement),
        backoff_(backoff),
        processes_(processes),
        planner_(planner),
        lifecycle_(lifecycle) {}

  bool gives_up_workers(Id job) const;  // by its decision it has fewer than now
  void reconcile(JobRecord& job, double now);
  void clock_was_set_back();

 private:
  struct Requests {  // to a job
    std::optional<double> stop_asked;
    std::map<Id, double> drain_asked;      // by worker
    std::optional<double> orphaned_since;  // no process that is known could coordinate the job
    std::optional<double> blocked_since;   // none of its new slots is free, and it must not leave all of its old ones
  };
  struct WorkerDiff {                      // between a decision and the job's workers
    std::vector<std::vector<Id>> missing;  // places of the decision without a worker
    std::vector<ProcessRecord*> extra;     // workers without a place in the decision
    bool has_state = false;                // a worker that keeps its place has the job's state
    bool successors = false;               // a worker of the decision will have the state soon
  };
  void start_if_free(JobRecord& job, const Decision& decision, double now);
  void adjust_workers(JobRecord& job, const Decision& decision, double now);
  WorkerDiff compare_workers(const JobRecord& job, const Decision& decision);
  bool may_have_died(Id job, double now);  // the coordinator whose endpoint the job shows
  void start_coordinator(JobRecord& job, const WorkerShape& shape, double now);
  void start_worker(const JobRecord& job, const std::vector<Id>& slots, const std::string& endpoint, double now);
  void drain(ProcessRecord& worker, const std::string& reason, double now);
  void stop(JobRecord& job, const std::string& reason, double now);

  Store& store_;
  World& world_;
  const SchedulerOptions& options_;
  const Inventory& inventory_;
  const Placement& placement_;
  HostBackoff& backoff_;
  ProcessTable& processes_;
  Planner& planner_;
  JobLifecycle& lifecycle_;
  std::map<Id, Requests> requests_;
};

}  // namespace elinvar::pool
