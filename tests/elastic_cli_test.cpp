// Real jobs of several processes: workers are killed, join and leave, and the ledger is that of the undisturbed run.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "tensor/file.h"
#include "tensor/isa.h"
#include "tests/temporary_folder.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;

// Batch norm, dropout, and short batches at the end of each epoch that leave virtual ranks without samples.
const char* const kJob = R"([run]
steps = 600
batch_size = 12
virtual_ranks = 5
seed = 5
checkpoint_every = 100
state_digest_every = 7
eval_every = 150

[data]
kind = "synthetic"
size = 51
classes = 3
image_size = 8
crop_padding = 1

[optimizer]
lr = 0.05

[[model.layer]]
kind = "conv2d"
out = 6
[[model.layer]]
kind = "batch_norm"
[[model.layer]]
kind = "dropout"
p = 0.1
[[model.layer]]
kind = "global_avg_pool"
[[model.layer]]
kind = "linear"
)";

class ElasticJob : public testing::Test {
 protected:
  void SetUp() override {
    File::create(folder_ / "job.toml").write(kJob);
    train_undisturbed(600);
  }
  // What every other run of so many steps is compared with.
  void train_undisturbed(int steps) {
    steps_ = std::to_string(steps);
    const std::string name = "whole" + steps_;
    EXPECT_EQ(wait(start(name, {"--workers", "1"})), 0) << read_file(folder_ / (name + ".err"));
    ledger_ = ledger(name);
    EXPECT_EQ(std::count(ledger_.begin(), ledger_.end(), '\n'), steps);
  }

  pid_t spawn(std::vector<std::string> arguments, const std::string& name) const {
    arguments.insert(arguments.begin(), std::string(ELINVAR_BIN_DIR) + "/train");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const std::string out = folder_ / (name + ".out"), err = folder_ / (name + ".err");
    const pid_t child = fork();
    if (child == 0) {
      if (!freopen(out.c_str(), "w", stdout) || !freopen(err.c_str(), "w", stderr)) _exit(127);
      execv(argv[0], argv.data());
      _exit(127);
    }
    return child;
  }
  pid_t start(const std::string& name, const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {
        "run", folder_ / "job.toml", "--run-dir", folder_ / name, "--threads", "1", "--steps", steps_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return spawn(arguments, name);
  }
  static int wait(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::string ledger(const std::string& name) const { return read_file(folder_ / name / "ledger.jsonl"); }

  // Waits until the ledger has so many lines.
  void reach(const std::string& name, int lines) const {
    const fs::path path = folder_ / name / "ledger.jsonl";
    for (int i = 0; i < 6000; ++i) {
      if (fs::exists(path)) {
        const std::string text = read_file(path);
        if (std::count(text.begin(), text.end(), '\n') >= lines) return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    FAIL() << name << " does not reach step " << lines;
  }
  nlohmann::json status(const std::string& name) const {
    if (wait(spawn({"ctl", folder_ / name, "status", "--json"}, "ctl")) != 0) return nlohmann::json::object();
    return nlohmann::json::parse(read_file(folder_ / "ctl.out"));
  }
  std::string endpoint(const std::string& name) const {
    return nlohmann::json::parse(read_file(folder_ / name / "coordinator.json")).at("endpoint");
  }
  void expect_undisturbed(const std::string& name, pid_t job) const {
    EXPECT_EQ(wait(job), 0) << read_file(folder_ / (name + ".err"));
    EXPECT_EQ(ledger(name), ledger_);
  }

  test::TemporaryFolder folder_;
  std::string ledger_, steps_;
};

TEST_F(ElasticJob, AnyNumberOfWorkersGivesTheSameLedger) {
  for (const int workers : {2, 3, 4, 5, 7, 8}) {
    const std::string name = std::to_string(workers);
    expect_undisturbed(name, start(name, {"--workers", name}));
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

TEST_F(ElasticJob, WorkersJoinAndLeaveWhileItTrains) {
  train_undisturbed(6000);
  const pid_t job = start("run", {"--workers", "1"});
  reach("run", 20);
  const char* const isa = available_isas().size() > 1 ? name_of(available_isas()[available_isas().size() - 2]) : "auto";
  const pid_t joined = spawn({"join", endpoint("run"), "--threads", "2", "--isa", isa}, "joined");
  for (int i = 0; i < 400 && status("run").value("generation", 0) < 2; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(wait(spawn({"ctl", folder_ / "run", "drain", "1"}, "ctl")), 0) << read_file(folder_ / "ctl.err");
  expect_undisturbed("run", job);
  EXPECT_EQ(wait(joined), 0) << read_file(folder_ / "joined.err");
  const std::string events = read_file(folder_ / "run" / "events.jsonl");
  EXPECT_NE(events.find("\"left\""), std::string::npos) << events;
}

TEST_F(ElasticJob, TheCoordinatorMayDie) {
  const pid_t job = start("run", {"--workers", "2"});
  reach("run", 60);
  kill(job, SIGKILL);
  EXPECT_EQ(wait(job), 128 + SIGKILL);
  expect_undisturbed("run", start("run", {"--resume"}));
}

TEST_F(ElasticJob, AStrangerIsRefused) {
  const pid_t job = start("run", {"--workers", "1"});
  reach("run", 20);
  const pid_t stranger = spawn({"join", endpoint("run"), "--set", "optimizer.lr=0.1"}, "stranger");
  EXPECT_EQ(wait(stranger), 3);
  EXPECT_NE(read_file(folder_ / "stranger.err").find("configuration"), std::string::npos)
      << read_file(folder_ / "stranger.err");
  expect_undisturbed("run", job);
  EXPECT_EQ(wait(spawn({"join", "tcp://127.0.0.1:1"}, "nobody")), 3);
  EXPECT_EQ(wait(spawn({"ctl", folder_ / "nothing", "status"}, "ctl")), 2);
}

}  // namespace
}  // namespace elinvar
