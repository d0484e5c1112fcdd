// A real pool: its daemon, the jobs that it starts, and its commands.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tensor/base/file.h"
#include "tests/jobs/small_job.h"
#include "tests/jobs/train_process.h"
#include "tests/support/lines.h"
#include "tools/cli/program_beside.h"
#include "tools/pool/hosts/process.h"
#include "tools/pool/store/store.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

class PoolJob : public testing::Test, protected test::TrainRuns {
 protected:
  void SetUp() override {
    folder_.write("job.toml", test::text_of({.steps = 12000,
                                             .batch_size = 6,
                                             .virtual_ranks = 3,
                                             .checkpoint_every = 1000,
                                             .samples = 24,
                                             .image_size = 4,
                                             .channels = 4,
                                             .run = "log_every = 5000\n"}));
    fs::create_directories(folder_ / "pool");
    folder_.write("pool/pool.toml",
                  "[pool]\npage = 0\npolicy = \"equal\"\ngrace = 10\n[here]\nslots = 2\nthreads = 1\n");
  }
  test::Ended pool(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--dir", folder_ / "pool"});
    return wait(spawn_program("pool", arguments, "command"), "command");
  }
  pid_t serve(const std::string& name, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"serve", "--dir", folder_ / "pool"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return spawn_program("pool", arguments, name);
  }
  int serve_again() { return wait(serve("again"), "again", std::chrono::seconds(20)).code; }
  Json view(const std::vector<std::string>& arguments) {
    std::vector<std::string> all = arguments;
    all.push_back("--json");
    const test::Ended ended = pool(all);
    EXPECT_EQ(ended.code, 0) << ended.err;
    return Json::parse(ended.out);
  }
  fs::path run_of(int job) const { return fs::path("pool") / "jobs" / std::to_string(job) / "run"; }
  int events(const fs::path& run, const std::string& what) {
    if (!fs::exists(folder_ / run.string() / "events.jsonl")) return 0;
    const std::string text = read_file(folder_ / run.string() / "events.jsonl"), sign = "\"event\":\"" + what + "\"";
    int count = 0;
    for (size_t at = text.find(sign); at != std::string::npos; at = text.find(sign, at + 1)) ++count;
    return count;
  }
  // The number of members of the newest generation.
  size_t members(const fs::path& run) {
    if (events(run, "generation") == 0) return 0;
    size_t count = 0;
    for (const std::string& line : test::lines_of(read_file(folder_ / run.string() / "events.jsonl"))) {
      const Json event = Json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (event.is_object() && event["event"] == "generation") count = event["members"].size();
    }
    return count;
  }
  std::string story() { return pool({"history"}).out; }
};

TEST_F(PoolJob, TheDaemonMayDieAndJobsEndAsIfNothingHadHappened) {
  const test::Ended whole =
      wait(spawn({"run", folder_ / "job.toml", "--run-dir", folder_ / "whole", "--threads", "1"}, "whole"), "whole");
  ASSERT_EQ(whole.code, 0) << whole.err;
  ASSERT_EQ(view({"submit", folder_ / "job.toml", "--name", "one"}).at("job"), 1);
  const pid_t first = serve("first");
  until([&] { return events(run_of(1), "generation") >= 2; });
  ASSERT_EQ(view({"submit", folder_ / "job.toml", "--name", "two", "--max", "1"}).at("job"), 2);
  reach(run_of(2), 100);
  EXPECT_EQ(events(run_of(1), "left"), 1) << "one gave a slot to the other\n"
                                          << story() << read_file(folder_ / run_of(1).string() / "events.jsonl");
  kill(first, SIGKILL);
  EXPECT_EQ(wait(first, "first").code, 128 + SIGKILL);
  reach(run_of(1), static_cast<int>(recorded(run_of(1))) + 100);  // trains while no daemon runs
  EXPECT_NE(pool({"list"}).out.find("no daemon serves"), std::string::npos);
  const test::Ended second = wait(serve("second", {"--until-done"}), "second");
  EXPECT_EQ(second.code, 0) << second.err;
  for (const int job : {1, 2}) {
    EXPECT_EQ(ledger(run_of(job)), ledger("whole")) << story();
    EXPECT_EQ(digests(run_of(job)), digests("whole"));
    const Json status = view({"status", std::to_string(job)});
    EXPECT_EQ(status.at("state"), "finished");
    EXPECT_EQ(status.at("step"), 12000);
    EXPECT_EQ(status.at("failures"), 0) << story();
    struct stat directory {};
    ASSERT_EQ(::stat((folder_ / run_of(job).parent_path().string()).c_str(), &directory), 0);
    EXPECT_EQ(directory.st_mode & 0777, 0700u);
  }
  int starts = 0;
  const Json history = view({"history"});
  for (const Json& line : history.at("log")) starts += line.at("what") == "start";
  EXPECT_EQ(starts, 2) << "nothing was started twice\n" << story();
  EXPECT_EQ(remaining_children(std::chrono::seconds(10)), "");
}

// A similar job was faster as one worker with two threads: this one starts with that split, and has the same result.
TEST_F(PoolJob, SlotsAreDividedAsTheJobBeforeWasFastest) {
  const test::Ended whole =
      wait(spawn({"run", folder_ / "job.toml", "--run-dir", folder_ / "whole", "--threads", "1"}, "whole"), "whole");
  ASSERT_EQ(whole.code, 0) << whole.err;
  ASSERT_EQ(pool({"submit", folder_ / "job.toml"}).code, 0);
  {
    pool::Store store(folder_ / "pool");
    store.measurements.record(1, 1, {.workers = {{"cpu-1", 2}}, .shape = {}, .seconds = 60, .rate = 100});
    store.measurements.record(1, 2, {.workers = {{"cpu-1", 1}}, .shape = {.width = 2}, .seconds = 60, .rate = 300});
    pool::JobRecord before = *store.jobs.find(1);
    before.state = pool::JobRecord::State::finished;
    store.jobs.save(before);
  }
  ASSERT_EQ(pool({"submit", folder_ / "job.toml"}).code, 0);
  const test::Ended daemon = wait(serve("daemon", {"--until-done"}), "daemon");
  EXPECT_EQ(daemon.code, 0) << daemon.err;
  EXPECT_EQ(ledger(run_of(2)), ledger("whole")) << story();
  EXPECT_NE(story().find("1 worker of 2 slots"), std::string::npos) << story();
  EXPECT_EQ(events(run_of(2), "hello"), 1) << story();
  EXPECT_NE(read_file(folder_ / run_of(2).string() / "events.jsonl").find("\"--threads\",\"2\""), std::string::npos);
}

// A host with three GPUs, simulated by a program that claims them and computes on the CPU. Each worker gets another
// GPU, also one that replaces a dead worker under the next daemon.
TEST_F(PoolJob, EachWorkerOfAHostHasAGpuOfItsOwn) {
  const std::string train = program_beside("train"), told = folder_ / "told";
  folder_.write("told", "");
  const fs::path with_gpus = folder_.write("train_with_gpus", R"(#!/bin/sh
[ "$1" = devices ] && printf 'cpu x\ncuda:0 x\ncuda:1 x\ncuda:2 x\n' && exit
for word; do
  shift
  case "$word" in cuda*) echo "$word" >> ')" + told + R"('; word=cpu ;; esac
  set -- "$@" "$word"
done
exec ')" + train + R"(' "$@"
)");
  fs::permissions(with_gpus, fs::perms::owner_all);
  folder_.write("pool/pool.toml", "[pool]\npage = -1\npolicy = \"equal\"\ntrain = \"" + with_gpus.string() +
                                      "\"\n[gpus]\ndevice = \"cuda\"\nthreads = 1\n");
  ASSERT_EQ(pool({"submit", folder_ / "job.toml", "--set", "run.steps=1000000"}).code, 0);
  const auto devices = [&] {
    std::istringstream lines(read_file(told));
    std::vector<std::string> all;
    for (std::string line; std::getline(lines, line);) all.push_back(line);
    std::sort(all.begin(), all.end());
    return all;
  };
  const pid_t first = serve("first");
  // Others have the state of the worker that dies below, or the job would begin again with three new workers.
  until([&] { return members(run_of(1)) >= 3; });
  EXPECT_EQ(devices(), (std::vector<std::string>{"cuda:0", "cuda:1", "cuda:2"})) << story();
  kill(first, SIGKILL);
  EXPECT_EQ(wait(first, "first").code, 128 + SIGKILL);
  pid_t dies = 0;
  std::string its_own;
  {
    pool::Store store(folder_ / "pool");
    for (const pool::ProcessRecord& p : store.processes.present()) {
      if (p.coordinator) continue;
      dies = static_cast<pid_t>(std::stol(p.handle));
      for (const pool::SlotRecord& s : store.slots.present())
        if (s.id == p.slots.at(0)) its_own = s.device;
    }
  }
  ASSERT_GT(dies, 0);
  const int introduced = events(run_of(1), "hello");
  kill(dies, SIGKILL);
  folder_.write("told", "");
  const pid_t second = serve("second", {"--until-done"});
  until([&] { return events(run_of(1), "hello") > introduced && !devices().empty(); });
  EXPECT_EQ(devices(), std::vector<std::string>{its_own}) << story();
  EXPECT_EQ(pool({"cancel", "1"}).code, 0);
  EXPECT_EQ(wait(second, "second").code, 0) << story();
}

TEST_F(PoolJob, WhatIsNoNumberOfWorkersIsRefusedByName) {
  for (const std::string option : {"--min", "--max", "--size"})
    for (const std::string wrong : {"-3", "0", "nan", "1e9", "99999999999999999999", ""}) {
      const test::Ended ended = pool({"submit", folder_ / "job.toml", option + "=" + wrong});
      EXPECT_EQ(ended.code, 2) << option << " " << wrong << ": " << ended.out;
      EXPECT_NE(ended.err.find(option), std::string::npos) << ended.err;
    }
  EXPECT_FALSE(fs::exists(folder_ / "pool/pool.db"));
}

TEST_F(PoolJob, WhatIsNoNumberOfSecondsIsRefusedByName) {
  const std::vector<std::vector<std::string>> commands = {
      {"sim", "elastic", "--seeds", "1", "--until"},
      {"sim", "elastic", "--seeds", "1", "--horizon"},
      {"sim", "--check", folder_ / "job.toml", "--seconds"},
      {"measure", folder_ / "job.toml", "--seconds"},
  };
  for (std::vector<std::string> command : commands)
    for (const std::string wrong : {"nan", "inf", "0", "-1", "x"}) {
      const std::string option = command.back();
      command.back() = option + "=" + wrong;
      const test::Ended ended = wait(spawn_program("pool", command, "command"), "command");
      EXPECT_EQ(ended.code, 2) << option << " " << wrong << ": " << ended.out;
      EXPECT_NE(ended.err.find(option), std::string::npos) << ended.err;
      command.back() = option;
    }
  EXPECT_EQ(pool({"history", "7"}).code, 2);
}

TEST_F(PoolJob, CancelStopsARunningJob) {
  ASSERT_EQ(pool({"submit", folder_ / "job.toml", "--set", "run.steps=1000000"}).code, 0);
  const pid_t daemon = serve("daemon", {"--until-done"});
  reach(run_of(1), 50);
  EXPECT_EQ(pool({"cancel", "1"}).code, 0);
  EXPECT_EQ(wait(daemon, "daemon").code, 0);
  EXPECT_EQ(view({"status", "1"}).at("state"), "cancelled") << story();
  EXPECT_EQ(pool({"cancel", "1"}).code, 1);
  EXPECT_EQ(pool({"cancel", "7"}).code, 2);
  EXPECT_EQ(remaining_children(std::chrono::seconds(10)), "");
}

TEST_F(PoolJob, AJobThatLosesItsLedgerFailsAtOnceAndSaysWhy) {
  ASSERT_EQ(pool({"submit", folder_ / "job.toml", "--set", "run.steps=1000000"}).code, 0);
  const pid_t first = serve("first");
  reach(run_of(1), 1500);  // after a checkpoint
  kill(first, SIGKILL);
  wait(first, "first");
  for (const elinvar::pool::ProcessRecord& p :
       elinvar::pool::Store::open_existing(folder_ / "pool").processes.present())
    elinvar::pool::kill_process(p.handle);
  fs::remove(folder_ / run_of(1).string() / "ledger.jsonl");
  EXPECT_EQ(wait(serve("next", {"--until-done"}), "next", std::chrono::seconds(60)).code, 0);
  const Json status = view({"status", "1"});
  EXPECT_EQ(status.at("state"), "failed") << story();
  EXPECT_NE(status.at("reason").get<std::string>().find("ledger.jsonl"), std::string::npos) << status;
  const std::string log = story();
  EXPECT_EQ(log.find(" rest "), std::string::npos) << "no host is to blame\n" << log;
}

// Submitted jobs survive changes to files in the pool's directory.
TEST_F(PoolJob, FilesThatAreDamagedOrRemovedLoseNoJob) {
  for (const char* name : {"one", "two"})
    ASSERT_EQ(pool({"submit", folder_ / "job.toml", "--set", "run.steps=1000000", "--name", name, "--max", "1"}).code,
              0);
  fs::create_directories(folder_ / "pool/jobs/1");
  folder_.write("pool/jobs/1/config.toml", "garbage [[");
  const pid_t daemon = serve("daemon", {"--until-done"});
  reach(run_of(2), 50);
  for (const char* name : {"pool.db", "pool.db-wal", "pool.db-shm", "lock"}) fs::remove(folder_ / "pool" / name);
  until([&] { return fs::exists(folder_ / "pool/pool.db"); });
  EXPECT_EQ(serve_again(), 2) << "the daemon has its lock again";
  EXPECT_EQ(view({"submit", folder_ / "job.toml", "--set", "run.steps=20"}).at("job"), 3);
  for (const char* job : {"1", "2"}) {
    EXPECT_GT(view({"status", job}).at("step"), 0) << story();
    EXPECT_EQ(pool({"cancel", job}).code, 0);
  }
  EXPECT_EQ(wait(daemon, "daemon").code, 0);
  EXPECT_EQ(view({"status", "3"}).at("state"), "finished") << story();
}

TEST_F(PoolJob, WhatCannotBeTrainedIsTold) {
  folder_.write("pool/pool.toml", "[pool]\npage = -1\nfailures = 2\n[here]\nslots = 2\nthreads = 1\n");
  ASSERT_EQ(pool({"submit", folder_ / "job.toml", "--set", "data.kind=cifar10", "--set", "data.path=nowhere"}).code, 0);
  EXPECT_EQ(wait(serve("daemon", {"--until-done"}), "daemon").code, 0);
  const Json status = view({"status", "1"});
  EXPECT_EQ(status.at("state"), "failed");
  EXPECT_NE(status.at("reason").get<std::string>().find("nowhere"), std::string::npos) << story();
  EXPECT_EQ(pool({"submit", folder_ / "none.toml"}).code, 2);
}

}  // namespace
}  // namespace elinvar
