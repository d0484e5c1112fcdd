// Real jobs of several processes: workers are killed, join and leave, and the ledger is that of the undisturbed run.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <thread>

#include "elastic/run/generation_store.h"
#include "tensor/base/file.h"
#include "tensor/isa.h"
#include "tests/jobs/small_job.h"
#include "tests/jobs/train_process.h"

namespace elinvar {
namespace {

class ElasticJob : public testing::Test, protected test::TrainRuns {
 protected:
  void SetUp() override {
    folder_.write("job.toml", test::text_of({.run = "eval_every = 150\n", .data = "crop_padding = 1\n"}));
    train_undisturbed(600);
  }
  // Makes the run to which all others of this length are compared.
  void train_undisturbed(int steps) {
    steps_ = std::to_string(steps);
    const std::string name = "whole" + steps_;
    const test::Ended ended = wait(start(name, {"--workers", "1"}), name);
    EXPECT_EQ(ended.code, 0) << ended.err;
    ledger_ = ledger(name);
    EXPECT_EQ(recorded(name), steps);
  }
  pid_t start(const std::string& name, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {
        "run", folder_ / "job.toml", "--run-dir", folder_ / name, "--threads", "1", "--steps", steps_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return spawn(arguments, name);
  }
  void expect_undisturbed(const std::string& name, pid_t job) const {
    const test::Ended ended = wait(job, name);
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(ledger(name), ledger_);
  }

  // Checks that the steps of each generation in metrics.jsonl have the generation's number of workers.
  void expect_workers_of_each_generation(const std::string& name) const {
    std::istringstream metrics(read_file(folder_ / name / "metrics.jsonl"));
    for (std::string line; std::getline(metrics, line);) {
      const nlohmann::json step = nlohmann::json::parse(line);
      if (!step.contains("generation")) continue;
      const auto generation = GenerationStore(folder_ / name).read(step.at("generation").get<int64_t>());
      ASSERT_TRUE(generation.has_value()) << line;
      EXPECT_EQ(step.at("workers"), generation->members.size()) << line;
    }
  }

  std::string ledger_, steps_;
};

TEST_F(ElasticJob, AnyNumberOfWorkersGivesTheSameLedger) {
  for (const int workers : {2, 3, 4, 5, 7, 8}) {
    const std::string name = std::to_string(workers);
    expect_undisturbed(name, start(name, {"--workers", name}));
    const std::string metrics = read_file(folder_ / name / "metrics.jsonl");
    EXPECT_GT(nlohmann::json::parse(metrics.substr(0, metrics.find('\n'))).at("reduce_seconds").get<double>(), 0);
  }
}

TEST_F(ElasticJob, AKilledWorkerIsMissedByNobody) {
  const pid_t job = start("run", {"--workers", "3"});
  for (const int line : {50, 200}) {
    reach("run", line);
    const nlohmann::json workers = status("run").value("workers", nlohmann::json::array());
    ASSERT_FALSE(workers.empty());
    kill(workers[workers.size() / 2].at("about").at("pid").get<pid_t>(), SIGKILL);
  }
  expect_undisturbed("run", job);
}

// Otherwise the first generation would wait for it for half a minute, and begin without it.
TEST_F(ElasticJob, AWorkerThatDiesBeforeTheStartIsReplaced) {
  const pid_t job = start("run", {"--workers", "3"});
  pid_t first = 0;
  for (int i = 0; i < 5000 && first == 0; ++i) {
    std::ifstream children(fmt::format("/proc/{}/task/{}/children", job, job));
    if (!(children >> first)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_NE(first, 0);
  kill(first, SIGKILL);
  expect_undisturbed("run", job);
  const std::string events = read_file(folder_ / "run" / "events.jsonl");
  EXPECT_NE(events.find("\"members\":[1,2,3]"), std::string::npos) << events;
}

TEST_F(ElasticJob, WorkersJoinAndLeaveWhileItTrains) {
  train_undisturbed(6000);
  const pid_t job = start("run", {"--workers", "1"});
  reach("run", 20);
  const char* const isa = available_isas().size() > 1 ? name_of(available_isas()[available_isas().size() - 2]) : "auto";
  const pid_t joined = spawn({"join", endpoint("run"), "--threads", "2", "--isa", isa}, "joined");
  for (int i = 0; i < 400 && status("run").value("generation", 0) < 2; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(wait(spawn({"ctl", folder_ / "run", "drain", "1"}, "ctl"), "ctl").code, 0);
  expect_undisturbed("run", job);
  EXPECT_EQ(wait(joined, "joined").code, 0) << read_file(folder_ / "joined.err");
  const std::string events = read_file(folder_ / "run" / "events.jsonl");
  EXPECT_NE(events.find("\"left\""), std::string::npos) << events;
  expect_workers_of_each_generation("run");
}

TEST_F(ElasticJob, TheCoordinatorMayDie) {
  const pid_t job = start("run", {"--workers", "2"});
  reach("run", 60);
  kill(job, SIGKILL);
  EXPECT_EQ(wait(job, "run").code, 128 + SIGKILL);
  expect_undisturbed("run", start("run", {"--resume"}));
}

// A worker that does not see the run directory sends its parts to the coordinator.
TEST_F(ElasticJob, PartsComeFromWorkersWithoutTheDirectory) {
  train_undisturbed(6000);
  const pid_t job = start("run", {"--workers", "1"});
  reach("run", 20);
  const pid_t joined = spawn({"join", endpoint("run"), "--threads", "1", "--run-dir", folder_ / "elsewhere"}, "joined");
  expect_undisturbed("run", job);
  EXPECT_EQ(wait(joined, "joined").code, 0) << read_file(folder_ / "joined.err");
  EXPECT_EQ(read_file(folder_ / "run" / "events.jsonl").find("checkpoint_failed"), std::string::npos);
  const auto manifest_of = [&](const char* run) {
    return nlohmann::json::parse(read_file(folder_ / run / "checkpoints" / "step-6000" / "manifest.json"));
  };
  EXPECT_EQ(manifest_of("run").at("parts").size(), 2u);
  EXPECT_EQ(manifest_of("run").at("state"), manifest_of("whole6000").at("state"));
  EXPECT_EQ(wait(spawn({"eval", folder_ / "run"}, "eval"), "eval").code, 0) << read_file(folder_ / "eval.err");
}

// The worker is there when a resumed run begins, but cannot see the checkpoint: the run waits until it has received the
// state.
TEST_F(ElasticJob, AWorkerWithoutTheDirectoryTakesPartInAResumedRun) {
  train_undisturbed(2000);
  const pid_t first = start("run", {"--workers", "1"});
  reach("run", 250);
  EXPECT_EQ(wait(spawn({"ctl", folder_ / "run", "stop"}, "ctl"), "ctl").code, 0);
  EXPECT_EQ(wait(first, "run").code, 0);
  const pid_t resumed = start("run", {"--workers", "1", "--min-workers", "2", "--resume"});
  const auto begun = [&] {
    return nlohmann::json::parse(read_file(folder_ / "run" / "coordinator.json")).at("pid") == resumed;
  };
  for (int i = 0; i < 2000 && !begun(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const pid_t joined = spawn({"join", endpoint("run"), "--threads", "1", "--run-dir", folder_ / "elsewhere"}, "joined");
  expect_undisturbed("run", resumed);
  EXPECT_EQ(wait(joined, "joined").code, 0) << read_file(folder_ / "joined.err");
  const std::string events = read_file(folder_ / "run" / "events.jsonl");
  EXPECT_NE(events.find("too few workers see the run directory"), std::string::npos) << events;
}

TEST_F(ElasticJob, StatusTellsWhoIsHereAndWhereTheTimeWent) {
  train_undisturbed(3000);
  const pid_t job = start("run", {"--workers", "2"});
  reach("run", 50);
  const test::Ended asked = wait(spawn({"ctl", folder_ / "run", "status"}, "ctl"), "ctl");
  EXPECT_EQ(asked.code, 0) << asked.err;
  const auto expect = [&](const std::string& pattern) {
    EXPECT_TRUE(std::regex_search(asked.out, std::regex(pattern))) << pattern << " is not in\n" << asked.out;
  };
  expect(R"(^job: running, step \d+ of 3000, loss [\d.]+, [\d.]+( k| M)? samples/s, left \S+\n)");
  expect(R"(\ngeneration 1, 2 workers\n)");
  expect(R"(\n  worker 1: member, [23] virtual ranks, step \d+, 1 threads of \w+ on \S+(, \d+ MiB)?, pid \d+\n)");
  expect(R"(\n  worker 2: member, )");
  expect(R"(\ngoodput [\d.]+ % of \S+\n(  lost to \w+: [\d.e-]+ s \(\d+x\)\n)+last events)");
  expect(R"(\n  lost to starting: [\d.e-]+ s \(1x\)\n)");
  expect(R"(\nlast events \(UTC\)\n(  \d\d:\d\d:\d\d \w+.*\n)+$)");
  expect(R"(generation number=1 reason=start)");

  const nlohmann::json before = status("run");
  kill(before.at("workers").at(1).at("about").at("pid").get<pid_t>(), SIGKILL);
  reach("run", static_cast<int>(recorded("run")) + 200);
  const nlohmann::json after = status("run"), goodput = after.at("goodput");
  EXPECT_EQ(after.at("workers").size(), 1u);
  EXPECT_EQ(goodput.at("lost").at("recovering").at("times"), 1);
  double lost = 0;
  for (const auto& [cause, part] : goodput.at("lost").items()) lost += part.at("seconds").get<double>();
  EXPECT_GT(lost, 0);
  EXPECT_NEAR(goodput.at("training").get<double>() + lost, goodput.at("seconds").get<double>(), 1e-6);
  EXPECT_NEAR(goodput.at("goodput").get<double>(), 1 - lost / goodput.at("seconds").get<double>(), 1e-6);
  expect_undisturbed("run", job);
  const nlohmann::json result = nlohmann::json::parse(read_file(folder_ / "run" / "result.json"));
  EXPECT_EQ(result.at("goodput").at("lost").at("recovering").at("times"), 1);
  EXPECT_EQ(result.at("goodput").at("lost").at("finishing").at("times"), 1);
}

TEST_F(ElasticJob, AStrangerIsRefused) {
  const pid_t job = start("run", {"--workers", "1"});
  reach("run", 20);
  const test::Ended stranger =
      wait(spawn({"join", endpoint("run"), "--set", "optimizer.lr=0.1"}, "stranger"), "stranger");
  EXPECT_EQ(stranger.code, 3);
  EXPECT_NE(stranger.err.find("configuration"), std::string::npos) << stranger.err;
  expect_undisturbed("run", job);
  EXPECT_EQ(wait(spawn({"join", "tcp://127.0.0.1:1"})).code, 3);
  EXPECT_EQ(wait(spawn({"ctl", folder_ / "nothing", "status"})).code, 2);
}

// An error on another host must not stop the workers at work.
TEST_F(ElasticJob, AJoinerThatCannotStartIsMissedByNobody) {
  train_undisturbed(3000);
  const pid_t job = start("run", {"--workers", "1"});
  reach("run", 20);
  const test::Ended joiner = wait(spawn({"join", endpoint("run"), "--set", "data.kind=\"cifar10\"", "--set",
                                         "data.path=\"" + std::string(folder_ / "nothing") + "\""},
                                        "joiner"),
                                  "joiner");
  EXPECT_NE(joiner.code, 0);
  expect_undisturbed("run", job);
  const std::string events = read_file(folder_ / "run" / "events.jsonl");
  EXPECT_NE(events.find("a worker failed"), std::string::npos) << events;
}

}  // namespace
}  // namespace elinvar
