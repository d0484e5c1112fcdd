// Faults without a person to help: the coordinator dies or stops and is not resumed; a worker stops, or hangs while its
// heartbeats go on; a disk fails. The run finishes with the undisturbed ledger, or states why it cannot.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tests/jobs/small_job.h"
#include "tests/jobs/train_process.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

class Unattended : public testing::Test, protected test::TrainRuns {
 protected:
  // Starts a job of three workers, and computes the expected ledger.
  void begin(const std::vector<std::string>& settings = {}) {
    folder_.write("job.toml", test::text_of({.steps = 3000, .checkpoint_every = 1000, .state_digest_every = 50}));
    EXPECT_EQ(wait(start("whole", "1", settings), "whole").code, 0);
    expected_ = ledger("whole");
    job_ = start("run", "3", settings);
    reach("run", 50);
    for (const auto& worker : status("run").value("workers", nlohmann::json::array()))
      workers_.push_back(worker.at("about").at("pid").get<pid_t>());
    ASSERT_EQ(workers_.size(), 3u);
  }
  pid_t start(const std::string& name, const std::string& workers, const std::vector<std::string>& settings) const {
    std::vector<std::string> arguments = {"run", folder_ / "job.toml", "--run-dir", folder_ / name, "--threads",
                                          "1",   "--workers",          workers};
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    return spawn(arguments, name);
  }
  // Waits until a condition holds, at most a minute. Returns the seconds that it took; fails the test if it takes
  // longer.
  template <class Condition>
  double seconds_until(Condition&& condition) const {
    const Clock::time_point began = Clock::now();
    while (Clock::now() < began + std::chrono::seconds(60)) {
      if (condition()) return std::chrono::duration<double>(Clock::now() - began).count();
      std::this_thread::sleep_for(milliseconds(5));
    }
    ADD_FAILURE() << "it does not happen: " << read_file(folder_ / "run.err") << told();
    return 60;
  }
  std::string told() const { return read_file(folder_ / "run" / "events.jsonl"); }
  bool told(const std::string& what) const { return told().find(what) != std::string::npos; }
  // For a run whose coordinator is not a child of the test.
  void expect_finished(int steps = 3000) const {
    const fs::path result = folder_ / "run" / "result.json";
    seconds_until([&] { return fs::exists(result) && read_file(result).find("\"finished\"") != std::string::npos; });
    EXPECT_EQ(ledger("run"), expected_);
    EXPECT_EQ(remaining_children(std::chrono::seconds(30)), "");
    EXPECT_NE(read_file(folder_ / "run.out").find(fmt::format("final step={}", steps)), std::string::npos);
  }
  void expect_undisturbed() const {
    const test::Ended ended = wait(job_, "run");
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(ledger("run"), expected_);
  }

  pid_t job_ = 0;
  std::string expected_;
  std::vector<pid_t> workers_;
};

TEST_F(Unattended, AWorkerTakesOverFromAKilledCoordinator) {
  begin();
  kill(job_, SIGKILL);
  // Also kills the worker that would take over first; the others miss it until one takes over.
  kill(workers_[0], SIGKILL);
  expect_finished();
  EXPECT_TRUE(told("\"another coordinator\"")) << told();
}

// Parts of checkpoints that will never be committed, each a whole state, do not accumulate.
TEST_F(Unattended, DeadCoordinatorsLeaveNoPartsOfCheckpoints) {
  begin({"run.checkpoint_every=2", "run.steps=1500"});
  const auto aside = [&] {
    int count = 0;
    for (const fs::path& path : paths_in(folder_ / "run" / "checkpoints"))
      count += path.filename().string().starts_with(".writing-");
    return count;
  };
  const auto coordinator = [&] {
    const auto record = nlohmann::json::parse(read_file(folder_ / "run" / "coordinator.json"), nullptr, false);
    return record.is_object() ? record.value("pid", pid_t{0}) : 0;
  };
  for (pid_t gone = 0, kills = 0; kills < 2; ++kills) {
    seconds_until([&] { return coordinator() != gone && aside() > 0; });
    gone = coordinator();
    kill(gone, SIGKILL);
  }
  seconds_until([&] { return fs::exists(folder_ / "run" / "coordinators" / "3.json"); });
  seconds_until([&] { return aside() <= 4; });  // the new coordinator removes parts of the time without one
  expect_finished(1500);
  EXPECT_EQ(aside(), 0);
}

// A continued run before its first generation: no worker is a member, and the first one is stopped, so the others wait
// for it.
TEST_F(Unattended, AWorkerTakesOverBeforeTheFirstGeneration) {
  folder_.write("job.toml", test::text_of({.steps = 300, .checkpoint_every = 100, .state_digest_every = 50}));
  EXPECT_EQ(wait(start("whole", "1", {}), "whole").code, 0);
  expected_ = ledger("whole");
  const std::vector<std::string> run = {"run", folder_ / "job.toml", "--run-dir", folder_ / "run", "--threads", "1"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments = run;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  EXPECT_EQ(wait(spawn(with({"--until", "20"}), "run"), "run").code, 0);
  job_ = spawn(with({"--resume", "--workers", "3"}), "run");
  const std::string children = fmt::format("/proc/{0}/task/{0}/children", job_);
  pid_t stopped = 0;
  // Until the worker executes its program, the coordinator waits for it and starts no others.
  seconds_until([&] {
    std::string program, argument;
    if (!(std::ifstream(children) >> stopped)) return false;
    std::ifstream command(fmt::format("/proc/{}/cmdline", stopped));
    return std::getline(command, program, '\0') && std::getline(command, argument, '\0') && argument == "join";
  });
  kill(stopped, SIGSTOP);
  const auto hellos = [&] {
    const std::string all = told();
    size_t count = 0;
    for (size_t at = 0; (at = all.find("\"event\":\"hello\"", at)) != std::string::npos; ++at) ++count;
    return count;
  };
  seconds_until([&] { return hellos() >= 3; });  // one of them by the worker of the first part
  kill(job_, SIGKILL);
  seconds_until([&] { return fs::exists(folder_ / "run" / "coordinators" / "3.json"); });
  kill(stopped, SIGCONT);
  expect_finished(300);
}

// A person's request to the first coordinator also applies to the next.
TEST_F(Unattended, ARunUntilAStepEndsThereUnderAnotherCoordinator) {
  folder_.write("job.toml", test::text_of({.steps = 1000000, .checkpoint_every = 1000, .state_digest_every = 50}));
  job_ =
      spawn({"run", folder_ / "job.toml", "--run-dir", folder_ / "run", "--threads", "1", "--until", "99999"}, "run");
  reach("run", 50);
  kill(job_, SIGKILL);
  EXPECT_EQ(wait(job_, "run").code, 128 + SIGKILL);
  // The original step is too far to wait for, and a nearer one might pass too soon: so the record is changed.
  const fs::path term = folder_ / "run" / "coordinators" / "1.json";
  auto record = nlohmann::json::parse(read_file(term));
  ASSERT_EQ(record.at("job").at("until"), 99999);
  record["job"]["until"] = recorded("run") + 100;
  replace_file(term, record.dump());
  // Starts at once; the worker would wait for some seconds.
  const test::Ended next = wait(spawn({"coordinate", folder_ / "run", "--term", "1"}, "next"), "next");
  EXPECT_EQ(next.code, 0) << next.err;
  EXPECT_GE(recorded("run"), record["job"]["until"].get<int64_t>());
  EXPECT_LT(recorded("run"), 99999);
  EXPECT_NE(read_file(folder_ / "run" / "result.json").find("\"interrupted\""), std::string::npos);
  EXPECT_EQ(remaining_children(std::chrono::seconds(30)), "");
}

TEST_F(Unattended, ACoordinatorThatComesBackStepsDown) {
  begin();
  kill(job_, SIGSTOP);
  seconds_until([&] { return fs::exists(folder_ / "run" / "coordinators" / "2.json"); });
  kill(job_, SIGCONT);
  const test::Ended stale = wait(job_, "run");
  EXPECT_EQ(stale.code, 3);
  EXPECT_NE(stale.err.find("steps down"), std::string::npos) << stale.err;
  expect_finished();
}

TEST_F(Unattended, ALastCheckpointThatCannotBeWrittenEndsTheRun) {
  begin();
  const fs::path checkpoints = folder_ / "run" / "checkpoints";
  fs::rename(checkpoints, folder_ / "kept");
  File::create(checkpoints);
  const test::Ended ended = wait(job_, "run");
  EXPECT_EQ(ended.code, 3);
  EXPECT_NE(ended.err.find("the last checkpoint, of step 3000, cannot be written"), std::string::npos) << ended.err;
  EXPECT_EQ(ledger("run"), expected_);
  EXPECT_EQ(remaining_children(std::chrono::seconds(10)), "");
  // Only the time since the last complete checkpoint is lost.
  fs::remove(checkpoints);
  fs::rename(folder_ / "kept", checkpoints);
  job_ = spawn({"run", folder_ / "job.toml", "--run-dir", folder_ / "run", "--threads", "1", "--resume"}, "run");
  expect_undisturbed();
}

TEST_F(Unattended, AStoppedWorkerIsOutInTime) {
  begin();
  kill(workers_[1], SIGSTOP);
  EXPECT_LE(seconds_until([&] { return told("silent for"); }), 5);
  expect_undisturbed();
}

TEST_F(Unattended, WorkersThatAllStopAreWaitedFor) {
  begin();
  for (const pid_t worker : workers_) kill(worker, SIGSTOP);
  seconds_until([&] { return told("all who have the state are silent"); });
  EXPECT_EQ(status("run").value("phase", ""), "holding");
  std::this_thread::sleep_for(std::chrono::seconds(1));
  for (const pid_t worker : workers_) kill(worker, SIGCONT);
  expect_undisturbed();
  EXPECT_FALSE(told("\"event\":\"lost\"")) << told();
}

TEST_F(Unattended, AHungWorkerWhoseHeartbeatsGoOnIsOutInTime) {
  begin({"data.image_size=64", "run.steps=1000", "run.checkpoint_every=500"});  // mostly busy with a rank gradient
  const pid_t main_thread = workers_[1];
  if (ptrace(PTRACE_SEIZE, main_thread, nullptr, nullptr) != 0) GTEST_SKIP() << "processes cannot be traced here";
  ASSERT_EQ(ptrace(PTRACE_INTERRUPT, main_thread, nullptr, nullptr), 0);
  ASSERT_EQ(waitpid(main_thread, nullptr, __WALL), main_thread);
  // If it held the session's lock at that moment, its heartbeats have ended as well.
  EXPECT_LE(seconds_until([&] { return told("hangs: at") || told("silent for"); }), 5);
  EXPECT_EQ(waitpid(main_thread, nullptr, __WALL), main_thread);  // the coordinator has killed it
  expect_undisturbed();
}

}  // namespace
}  // namespace elinvar
