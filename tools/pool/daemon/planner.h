#pragma once
// Builds a Pool from the current state, asks the policy for a plan, and keeps the decisions until the next plan. A plan
// that breaks the rules (plan/state.h) and a policy that throws are logged and change nothing.
#include <map>
#include <optional>
#include <vector>

#include "tools/pool/daemon/placement.h"
#include "tools/pool/daemon/profiler.h"
#include "tools/pool/daemon/scheduler_options.h"

namespace elinvar::pool {

// Returns the slots of each worker of a decision, sorted: `width` slots per worker.
std::vector<std::vector<Id>> places_of(const Decision& decision);

class Planner {
 public:
  Planner(Store& store, const SchedulerOptions& options, const Inventory& inventory, const Placement& placement,
          const ProcessTable& processes, Profiler& profiler)
      : store_(store),
        options_(options),
        inventory_(inventory),
        placement_(placement),
        processes_(processes),
        profiler_(profiler) {}

  void request() { requested_ = true; }  // something changed that plans depend on
  // Makes a plan if one was requested, or if the last one is `replan` seconds old. `answered`: every source has named
  // its machines; a plan before that would treat slots as gone that were only not named yet.
  void plan_if_due(std::vector<JobRecord>& jobs, bool answered, double now);

  const Decision* decision(Id job) const;  // null: none since the job stopped
  // Marks that the job stops only to continue in another worker shape, so that it keeps its decision meanwhile. A
  // decision without slots and keep_shape() clear the mark.
  void reshape(Id job) { planned_[job].reshaping = true; }
  void keep_shape(Id job) { planned_[job].reshaping = false; }
  bool reshaping(Id job) const;
  void forget(Id job) { planned_.erase(job); }  // the job no longer runs

  int wanted() const { return wanted_; }  // how many more slots could be used
  void want_nothing() { wanted_ = 0; }
  void clock_was_set_back();

 private:
  struct Planned {  // per job
    std::optional<Decision> decision;
    bool reshaping = false;
  };
  Pool pool(const std::vector<JobRecord>& jobs, double now) const;
  Job job(const JobRecord& record, double now) const;
  std::vector<Id> slots_of(const JobRecord& record, double now) const;
  std::vector<WorkerShape> shapes_of(const JobRecord& record, double now) const;
  bool reshapes(const JobRecord& record) const;
  void accept(const Pool& pool, const Job& job, const Decision& decision, std::vector<JobRecord>& jobs, double now);

  Store& store_;
  const SchedulerOptions& options_;
  const Inventory& inventory_;
  const Placement& placement_;
  const ProcessTable& processes_;
  Profiler& profiler_;
  std::map<Id, Planned> planned_;
  std::optional<double> began_, planned_at_;
  bool requested_ = true;
  int wanted_ = 0;
};

}  // namespace elinvar::pool
