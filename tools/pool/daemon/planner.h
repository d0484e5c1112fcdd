#pragma once
// Makes a Pool of what is there, asks the policy for a plan, and keeps the decisions until the next one. A plan that
// breaks the rules (plan/state.h) and a policy that throws are logged, and change nothing.
#include <map>
#include <optional>
#include <vector>

#include "tools/pool/daemon/placement.h"
#include "tools/pool/daemon/profiler.h"
#include "tools/pool/daemon/scheduler_options.h"

namespace elinvar::pool {

// The slots of each worker of a decision, sorted: `width` slots a worker.
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

  void request() { requested_ = true; }  // something has changed that a plan depends on
  // Plans if that was requested, or `replan` seconds after the last plan. `answered`: every source has said what there
  // is; before that, a plan would take slots for gone that only were not heard of yet.
  void plan_if_due(std::vector<JobRecord>& jobs, bool answered, double now);

  const Decision* decision(Id job) const;  // null: there is none since the job stopped
  // The job stops only to go on in another worker shape: it keeps its decision meanwhile. A decision without slots
  // ends that, as does keep_shape().
  void reshape(Id job) { planned_[job].reshaping = true; }
  void keep_shape(Id job) { planned_[job].reshaping = false; }
  bool reshaping(Id job) const;
  void forget(Id job) { planned_.erase(job); }  // it runs no more

  int wanted() const { return wanted_; }  // so many more slots would be used
  void want_nothing() { wanted_ = 0; }
  void clock_was_set_back();

 private:
  struct Planned {  // for a job
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
