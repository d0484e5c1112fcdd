#pragma once
// The daemon's loop, without threads, clock and sockets: looks at machines, processes and run directories, makes a plan
// of what it sees, and reconciles the processes with it. Everything that must not be forgotten is on file before it is
// done, so that a daemon that is killed at any moment is followed by one that goes on: jobs train meanwhile, and the
// next daemon finds their processes.
//
// A job is a coordinator on this host, which takes no slot, and a worker for each slot (or `width` of them).
//
// The parts, each with its own state: Inventory (machines and slots), HostBackoff, ProcessTable, JobLifecycle (states
// of jobs), Profiler (measurements), Planner (decisions), Reconciler (what is done).
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tools/pool/daemon/reconciler.h"

namespace elinvar::pool {

class Scheduler {
 public:
  Scheduler(Store& store, World& world, std::vector<NamedSource> sources, SchedulerOptions options);
  Scheduler(const Scheduler&) = delete;  // its parts refer to each other
  Scheduler& operator=(const Scheduler&) = delete;

  // One turn of the loop; `now` by wall_clock(), which may be set back. Throws StoreDamage, and what SQLite throws
  // where the database cannot be written: nothing is left half done then.
  void tick(double now);
  void end(double now);  // machines on which nothing runs are given back

 private:
  // Runs `work` for a job. A Failure is the trouble of this job alone, and logged once: others go on.
  void isolated(Id job, const std::function<void()>& work);
  void load();
  void release(double idle);

  Store& store_;
  SchedulerOptions options_;
  double now_ = 0;
  std::map<Id, std::string> trouble_;  // of jobs
  Inventory inventory_;
  HostBackoff backoff_;
  ProcessTable processes_;
  Placement placement_;
  Profiler profiler_;
  Planner planner_;
  JobLifecycle lifecycle_;
  Reconciler reconciler_;
};

}  // namespace elinvar::pool
