#pragma once
// Reconciles the processes of jobs with the allocations of the plan: starts coordinators and workers, drains workers
// whose slots go to other jobs, and stops jobs. Workers that the plan no longer contains are asked to leave.
//
// The workers hold a job's state. So the last workers that have it stay until a successor has registered, unless their
// machine is about to go. A job that loses all its slots and gets no free ones stops with a checkpoint.
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

  bool gives_up_workers(Id job) const;  // its decision has fewer workers than it has now
  void reconcile(JobRecord& job, double now);
  void clock_was_set_back();

 private:
  struct Requests {  // requests to a job, and since when it has been waiting
    std::optional<double> stop_asked;
    std::map<Id, double> drain_asked;      // by worker
    std::optional<double> orphaned_since;  // no known process can be its coordinator
    // None of its new slots is free, and it must not leave all of its old ones.
    std::optional<double> blocked_since;
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
  bool may_have_died(Id job, double now);  // the coordinator at the job's endpoint
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
