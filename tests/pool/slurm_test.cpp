// The pool on a real Slurm of four nodes (tests/slurm/cluster). The test takes some minutes and root, and runs only on
// request:   ELINVAR_SLURM=1 pool_tests --gtest_filter='PoolSlurm*'
//
// Three different jobs train on idle nodes. Meanwhile ordinary Slurm jobs arrive at random and take nodes away, a node
// dies and comes back, and the pool's daemon is killed and started again. Every training job must end as if nothing had
// happened, and no ordinary job may wait for longer than the grace time.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <thread>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tests/jobs/small_job.h"
#include "tests/jobs/train_process.h"
#include "tests/places.h"
#include "tools/cli/program_beside.h"
#include "tools/pool/hosts/process.h"
#include "tools/pool/store/store.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using pool::run_program;
using pool::wall_clock;

constexpr double kGraceTime = 20;  // the partition's
constexpr double kSchedules = 6;   // seconds that Slurm may take to notice that a node is free

// Events happen at these fractions of the training, so that they fit fast and slow machines.
constexpr double kDaemonDies = 0.2, kNodeDies = 0.4, kNodeIsBack = 0.55, kLastArrival = 0.85;

class PoolSlurm : public testing::Test, protected test::TrainRuns {
 protected:
  void SetUp() override {
    if (std::getenv("ELINVAR_SLURM") == nullptr) GTEST_SKIP() << "takes minutes; ELINVAR_SLURM=1 asks for it";
    const pool::ProgramOutput told = run_program({cluster(), "start", folder_ / "slurm"}, 60);
    if (told.code == 3) GTEST_SKIP() << told.err;
    ASSERT_EQ(told.code, 0) << told.err;
    up_ = true;
    ::setenv("SLURM_CONF", (folder_ / "slurm" / "slurm.conf").c_str(), 1);
  }
  void TearDown() override {
    if (up_) run_program({cluster(), "stop", folder_ / "slurm"}, 60);
  }
  static std::string cluster() { return std::string(ELINVAR_SOURCE_DIR) + "/tests/slurm/cluster"; }
  static void rest(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

  std::string told(const std::vector<std::string>& words) {
    const pool::ProgramOutput answer = run_program(words, 20);
    EXPECT_EQ(answer.code, 0) << words[0] << ": " << answer.err;
    return answer.out;
  }
  // Kills its daemon and all processes under it.
  void kill_node(const std::string& node) {
    pid_t slurmd = 0;
    std::ifstream(folder_ / "slurm" / ("slurmd-" + node + ".pid")) >> slurmd;
    ASSERT_GT(slurmd, 1);
    ::kill(slurmd, SIGKILL);
    const std::string mark = "SLURMD_NODENAME=" + node;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename().string();
      std::ifstream file(entry.path() / "environ", std::ios::binary);
      const std::string environment((std::istreambuf_iterator<char>(file)), {});
      if (name.find_first_not_of("0123456789") == std::string::npos && environment.find(mark) != std::string::npos)
        ::kill(static_cast<pid_t>(std::stol(name)), SIGKILL);
    }
  }

  pid_t serve() {
    return spawn_program("pool", {"serve", "--dir", folder_ / "pool", "--until-done"},
                         "daemon" + std::to_string(++daemons_));
  }
  void submit(const std::string& name, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"submit", folder_ / (name + ".toml"), "--dir", folder_ / "pool"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const test::Ended ended = wait(spawn_program("pool", arguments, "submit"), "submit");
    ASSERT_EQ(ended.code, 0) << ended.err;
  }
  void undisturbed(const std::string& name) {
    const test::Ended ended = wait(
        spawn({"run", folder_ / (name + ".toml"), "--run-dir", folder_ / ("whole-" + name), "--threads", "2"}, name),
        name);
    ASSERT_EQ(ended.code, 0) << ended.err;
  }

  // Returns the fraction of all steps that is made.
  double progress() {
    double done = 0;
    const std::vector<pool::JobRecord> jobs = pool::Store::open_existing(folder_ / "pool").jobs.all();
    for (const pool::JobRecord& job : jobs)
      done += static_cast<double>(job.step) / static_cast<double>(std::max<int64_t>(1, job.steps));
    return done / static_cast<double>(jobs.size());
  }

  bool up_ = false;
  int daemons_ = 0;
};

// An ordinary job: when it was submitted, and the file in which it records its start.
struct Ordinary {
  double submitted;
  fs::path says;
  double began() const {
    double time = 0;
    std::ifstream(says) >> time;
    return time;
  }
};

double percentile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[static_cast<size_t>(part * static_cast<double>(values.size() - 1))];
}

TEST_F(PoolSlurm, HarvestsIdleNodesAndGivesWay) {
  folder_.write("cnn.toml", test::text_of({.steps = 18000,
                                           .batch_size = 24,
                                           .virtual_ranks = 4,
                                           .checkpoint_every = 1500,
                                           .samples = 96,
                                           .image_size = 12,
                                           .channels = 16,
                                           .run = "log_every = 1000\n"}));
  folder_.write("small.toml", test::text_of({.steps = 36000,
                                             .batch_size = 12,
                                             .virtual_ranks = 3,
                                             .checkpoint_every = 3000,
                                             .samples = 51,
                                             .image_size = 8,
                                             .channels = 8,
                                             .run = "log_every = 1000\n"}));
  std::string text;
  for (int i = 0; i < 400; ++i) text += fmt::format("line {} of a text about the number {}\n", i, i * i % 97);
  folder_.write("text/a.txt", text);
  folder_.write("gpt.toml", fmt::format(R"([run]
steps = 4500
batch_size = 8
virtual_ranks = 4
seed = 2
checkpoint_every = 600
log_every = 500
[model]
kind = "gpt"
layers = 2
heads = 2
channels = 32
[data]
kind = "text"
path = "{}"
context = 32
[optimizer]
kind = "adamw"
lr = 1e-3
)",
                                        (folder_ / "text").string()));
  const std::vector<std::string> names = {"cnn", "small", "gpt"};
  for (const std::string& name : names) ASSERT_NO_FATAL_FAILURE(undisturbed(name));
  folder_.write("pool/pool.toml", R"([pool]
policy = "equal"
advertise = "127.0.0.1"
page = -1
grace = 15
turn = 5
[cluster]
source = "slurm"
partition = "spare"
minutes = 60
)");
  for (const std::string& name : names) ASSERT_NO_FATAL_FAILURE(submit(name));

  pid_t daemon = serve();
  const double begin = wall_clock();
  std::mt19937 random(3);
  std::vector<Ordinary> ordinary;
  double idle = 0, last = begin, next = begin + 10;  // seconds times nodes without an ordinary job
  bool died = false, killed = false, back = false;
  while (true) {
    const double now = wall_clock(), into = now - begin, done = progress();
    int busy = 0;
    for (const Ordinary& job : ordinary) busy += job.began() > 0 && !fs::exists(job.says.string() + ".over");
    idle += (now - last) * (4 - busy);
    last = now;
    if (now >= next && done < kLastArrival) {
      const fs::path says = folder_ / fmt::format("ordinary-{}", ordinary.size());
      told({"sbatch", "--partition", "ordinary", "--nodes", "1", "--output", "/dev/null", "--wrap",
            fmt::format("date +%s.%N > {0}; sleep {1}; touch {0}.over", says.string(), 5 + random() % 15)});
      ordinary.push_back({now, says});
      next = now + 3 + static_cast<double>(random() % 6);
    }
    if (done > kDaemonDies && !killed) {
      killed = true;
      kill(daemon, SIGKILL);
      wait(daemon, "daemon1");
      rest(3);
      daemon = serve();
    }
    if (done > kNodeDies && !died) {  // the node's daemon and all processes under it
      died = true;
      kill_node("n4");
      told({"scontrol", "update", "NodeName=n4", "State=DOWN", "Reason=test"});
    }
    if (done > kNodeIsBack && !back) {
      back = true;
      told({"slurmd", "-N", "n4"});  // this suffices (ReturnToService=2)
    }
    int status = 0;
    if (::waitpid(daemon, &status, WNOHANG) == daemon) {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
          << read_file(folder_ / fmt::format("daemon{}.err", daemons_));
      break;
    }
    ASSERT_LT(into, 900)
        << wait(spawn_program("pool", {"history", "--dir", folder_ / "pool"}, "history"), "history").out;
    rest(0.2);
  }
  const double end = wall_clock();

  std::vector<double> waits;
  for (const Ordinary& job : ordinary) waits.push_back(job.began() - job.submitted);
  const pool::Store store = pool::Store::open_existing(folder_ / "pool");
  double harvested = 0, worked = 0;
  for (const pool::SlotRecord& s : store.slots.all()) harvested += (s.gone > 0 ? s.gone : end) - s.since;
  for (const pool::ProcessRecord& p : store.processes.all())
    if (!p.coordinator && p.ended > 0) worked += (p.ended - p.started) * static_cast<double>(p.slots.size());
  const std::string history =
      wait(spawn_program("pool", {"history", "--dir", folder_ / "pool", "--lines", "10000"}, "history"), "history").out;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string run = "pool/jobs/" + std::to_string(i + 1) + "/run";
    EXPECT_EQ(ledger(run), ledger("whole-" + names[i])) << names[i] << "\n" << history;
    const pool::JobRecord job = *store.jobs.find(static_cast<pool::Id>(i + 1));
    fmt::print("{}: {} steps in {:.0f} s, digest {}, {}\n", names[i], job.step, job.ended - job.submitted,
               job.digest.substr(0, 16),
               ledger(run) == ledger("whole-" + names[i]) ? "equal to the undisturbed run's" : "DIFFERENT");
  }
  fmt::print("ordinary jobs: {}, waited {:.1f} s (median), {:.1f} s (most)\n", waits.size(), percentile(waits, 0.5),
             percentile(waits, 1));
  fmt::print(
      "nodes: {:.0f} s idle of ordinary jobs, {:.0f} s harvested ({:.0f} %), {:.0f} s with a worker ({:.0f} %)\n", idle,
      harvested, 100 * harvested / idle, worked, 100 * worked / idle);
  for (const char* what : {"start ", "left ", "lost ", "notice ", "machine "}) {
    size_t count = 0;
    for (size_t at = history.find(what); at != std::string::npos; at = history.find(what, at + 1)) ++count;
    fmt::print("log: {} {}\n", what, count);
  }
  EXPECT_GE(waits.size(), 5u);
  EXPECT_LE(percentile(waits, 1), kGraceTime + kSchedules);
  EXPECT_TRUE(died && killed && back) << "the jobs were over too soon";
}

// tools/docs/elinvar.sbatch trains one job through preemptions and the deaths of its coordinator.
class SlurmScript : public testing::Test, protected test::TrainRuns {};

TEST_F(SlurmScript, TrainsLikeAnUndisturbedRun) {
  if (std::getenv("ELINVAR_SLURM") == nullptr) GTEST_SKIP() << "takes minutes; ELINVAR_SLURM=1 asks for it";
  const std::string script = std::string(ELINVAR_SOURCE_DIR) + "/tests/slurm/script";
  const pool::ProgramOutput told = run_program({script, program_beside("").string(), folder_ / "script"}, 500);
  if (told.code == 3) GTEST_SKIP() << told.err;
  EXPECT_EQ(told.code, 0) << told.out << told.err;
  EXPECT_TRUE(told.out.ends_with("\nequal\n")) << told.out;
}

}  // namespace
}  // namespace elinvar
