#pragma once
// A world for a pool's scheduler without processes and clocks: jobs with a number of steps per second and worker,
// machines that come, give notice and go, and processes that die. A crash of the scheduler is an exception from one of
// its calls.
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tensor/base/failure.h"
#include "tools/pool/daemon/scheduler.h"

namespace elinvar::pool::test {

struct SchedulerDies {};

class FakeWorld final : public World {
 public:
  explicit FakeWorld(Store& store, uint64_t seed = 1) : store_(store), random_(seed) {}

  // Called by tests.
  void advance(double seconds);
  void kill_worker();  // a random one
  void kill_coordinator(Id job);
  void kill_all_of(Id job);
  std::vector<std::string> running(Id job) const;  // names of the job's workers
  std::vector<std::string> devices(Id job) const;  // the devices on which they compute, sorted
  bool coordinated(Id job) const;
  int starts(Id job) const;  // starts of the job's coordinator
  void die_after(int calls) { calls_left_ = calls; }
  double chance(double most = 1) { return std::uniform_real_distribution<double>(0, most)(random_); }
  double steps_a_second = 2;             // per thread
  double tax = 0;                        // the fraction by which each worker beyond the first lengthens a step
  std::string words_of_dead = {};        // the end of each dead process's log
  std::optional<int> fails_at_once;      // the exit code with which every started worker ends at once
  Id fails_of = 0;                       // limits `fails_at_once` to this job; 0: all jobs
  std::optional<int> coordinator_fails;  // the exit code with which every started coordinator ends
  Id unreadable = 0;                     // a job whose state cannot be read

  // World
  void prepare(const JobRecord&) override { call(); }
  std::string start(const std::vector<std::string>& words, const std::filesystem::path& log) override;
  std::string find(const std::vector<std::string>& words) override;
  ProcessState state(const std::string& handle) override;
  void kill(const std::string& handle) override;
  std::string end_of_log(const std::filesystem::path&) override { return words_of_dead; }
  int64_t kernel_kills() override { return 0; }
  const RunStatus& status(Id job, double now) override;
  void request(Id job, const std::vector<std::string>& words) override;

 private:
  struct Process {
    std::vector<std::string> words;
    Id job = 0;
    bool coordinator = false, running = true, member = false;
    std::string name;
    int threads = 1;
    double born = 0, leaves = kNever;
    int code = 0;
  };
  struct Run {
    RunStatus status;
    double step = 0, saved = 0;
    bool coordinator = false;  // a coordinator lives
    double takeover = kNever;  // when a coordinator takes over
    double stops = kNever;
    int starts = 0;
  };
  void call();
  void end(Process& process, int code);
  std::vector<Process*> members(Id job);
  void over(Id job, const std::string& result);

  Store& store_;
  std::mt19937_64 random_;
  std::map<std::string, Process> processes_;
  std::map<Id, Run> runs_;
  double now_ = 1000;
  int next_ = 0, calls_left_ = -1;
};

// Machines that a test chooses.
class FakeSource final : public Source {
 public:
  std::vector<Machine> machines(double, int wanted) override {
    last_wanted = wanted;
    if (silent) throw Failure("it does not answer");
    return there;
  }
  std::vector<std::string> command(const Machine&, std::vector<std::string> words) const override { return words; }
  bool release(const Machine& machine) override {
    released.insert(machine.host);
    return !machine.lease.empty();
  }

  std::vector<Machine> there;
  std::set<std::string> released;
  bool silent = false;
  int last_wanted = 0;
};

}  // namespace elinvar::pool::test
