#pragma once
// A pool of this host in one program: the daemon's own loop (scheduler.h) with real jobs and workers, for measurements
// and for what is to be compared with a simulation. What runs at its end is killed, and its folder removed.
#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "tensor/base/scratch_folder.h"
#include "tools/pool/commands/submission.h"
#include "tools/pool/daemon/live_world.h"
#include "tools/training/interrupt.h"

namespace elinvar::pool {

struct RehearsalOptions {
  std::string train = {};  // the program; "": the one beside this one
  int slots = 2, threads = 1;
  Policy policy;
  std::function<std::shared_ptr<const Speed>(const JobRecord&)> speed;
  std::function<Overheads(const JobRecord&)> overheads = {};
  double replan = 10, patience = 1800, turn = 0, horizon = 120;  // seconds, of tools/pool/daemon/scheduler.h
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

  // Turns of the loop, twice a second as the daemon makes them, until it is done; Failure after `seconds`, or when it
  // is interrupted, with what happened last.
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
