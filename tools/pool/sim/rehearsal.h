#pragma once
// A pool of this host inside one program: the daemon's loop (scheduler.h) with real jobs and workers, for measurements
// and for comparisons with a simulation. The destructor kills what still runs and removes the folder.
#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "tensor/base/scratch_folder.h"
#include "tools/pool/daemon/live_world.h"
#include "tools/pool/store/store.h"
#include "tools/pool/store/submission.h"
#include "tools/training/interrupt.h"

namespace elinvar::pool {

struct RehearsalOptions {
  std::string train = {};  // the program; "": in this program's folder
  int slots = 2, threads = 1;
  Policy policy;
  std::function<std::shared_ptr<const Speed>(const JobRecord&)> speed;
  std::function<Overheads(const JobRecord&)> overheads = {};
  double replan = 10, patience = 1800, turn = 0, horizon = 120;  // seconds (tools/pool/daemon/scheduler_options.h)
};

class Rehearsal {
 public:
  explicit Rehearsal(RehearsalOptions options);
  ~Rehearsal();
  Rehearsal(const Rehearsal&) = delete;
  Rehearsal& operator=(const Rehearsal&) = delete;

  Store& store() { return *store_; }
  std::string kind() const { return fmt::format("cpu-{}", threads_); }  // of its slots
  std::filesystem::path run_directory(Id job) const { return store_->job_directory(job) / "run"; }
  const RunStatus& status(Id job) { return world_->status(job, now_); }
  Id submit(const Submission& submission);

  // Runs the loop twice a second, like the daemon, until `done` returns true. Throws Failure with the last log lines
  // after `seconds`, or when interrupted.
  void until(const std::string& what, const std::function<bool()>& done, double seconds);

 private:
  ScratchFolder folder_;
  int threads_;
  double now_ = 0;
  Interrupt interrupt_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<LiveWorld> world_;
  std::unique_ptr<Scheduler> scheduler_;
};

}  // namespace elinvar::pool
