#pragma once
// The daemon's loop, without threads, clock or sockets. Each turn looks at machines, processes and run directories,
// makes a plan, and reconciles the processes with it. Every action is recorded in the store before it is taken, so the
// daemon may be killed at any moment: jobs continue to train, and the next daemon finds their processes.
//
// A job consists of a coordinator on this host, which takes no slot, and of workers with `width` slots each.
//
// The parts own their state: Inventory (machines and slots), HostBackoff, ProcessTable, JobLifecycle (states of jobs),
// Profiler (measurements), Planner (decisions), Reconciler (actions).
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

  // Makes one turn of the loop. `now`: wall_clock(), which may be set back. Throws StoreDamage, and SQLite's exceptions
  // if the database cannot be written; no change is then half made.
  void tick(double now);
  void end(double now);  // gives back machines on which nothing runs

 private:
  // Runs `work` for a job. A Failure affects this job alone and is logged once; other jobs continue.
  void isolated(Id job, const std::function<void()>& work);
  void load();
  void release(double idle);

  Store& store_;
  SchedulerOptions options_;
  double now_ = 0;
  std::map<Id, std::string> trouble_;  // the current failure of each job
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
