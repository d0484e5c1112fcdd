#include "tools/pool/sim/rehearsal.h"

#include <chrono>
#include <thread>

#include "tensor/base/check.h"
#include "tools/cli/program_beside.h"
#include "tools/pool/hosts/process.h"
#include "tools/pool/page/view.h"

namespace elinvar::pool {

namespace fs = std::filesystem;

namespace {

constexpr auto kPoll = std::chrono::milliseconds(500), kLook = std::chrono::milliseconds(10);
constexpr auto kLongestKill = std::chrono::seconds(5);  // for killed processes to end
constexpr int64_t kTold = 30;                           // lines of the log in a failure's message

}  // namespace

Rehearsal::Rehearsal(RehearsalOptions options) : folder_("elinvar-pool"), threads_(options.threads) {
  if (options.train.empty()) options.train = program_beside("train");
  check(fs::exists(options.train), "there is no {}", options.train);
  store_ = std::make_unique<Store>(folder_.path() / "pool");
  world_ = std::make_unique<LiveWorld>(*store_, options.train, /*keys=*/false);
  std::vector<NamedSource> sources;
  sources.push_back(
      {"here", make_source({.name = "here", .slots = options.slots, .threads = options.threads}, options.train)});
  scheduler_ = std::make_unique<Scheduler>(
      *store_, *world_, std::move(sources),
      SchedulerOptions{.policy = std::move(options.policy),
                       .speed = [speed = std::move(options.speed)](
                                    const JobRecord& job, const std::vector<Measurement>&) { return speed(job); },
                       .overheads = std::move(options.overheads),
                       .train = options.train,
                       .replan = options.replan,
                       .patience = options.patience,
                       .turn = options.turn,
                       .horizon = options.horizon});
}

Rehearsal::~Rehearsal() {
  try {
    const auto deadline = std::chrono::steady_clock::now() + kLongestKill;
    for (const ProcessRecord& p : store_->processes.present())
      if (!p.handle.empty()) kill_process(p.handle);
    // Processes that are still ending write into the folder, which is removed next.
    for (const ProcessRecord& p : store_->processes.present())
      while (!p.handle.empty() && process_state(p.handle).running && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(kLook);
  } catch (const std::exception&) {  // nothing more can be done about them
  }
  scheduler_.reset();
  world_.reset();
  store_.reset();
}

Id Rehearsal::submit(const Submission& submission) {
  return store_->jobs.add(checked(submission, store_->directory(), wall_clock()));
}

void Rehearsal::until(const std::string& what, const std::function<bool()>& done, double seconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    now_ = wall_clock();
    scheduler_->tick(now_);
    if (done()) return;
    if (interrupt_.requested()) fail("interrupted");
    if (std::chrono::steady_clock::now() > deadline)
      fail("{}: not within {:.0f} s. The log of the pool:\n{}", what, seconds,
           log_text(log_view(store_->log.last(0, kTold))));
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace elinvar::pool
