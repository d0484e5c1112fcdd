// Jobs whose workers are stages of pipelines (pipeline parallelism, `--arrangement pp=2`): what
// tensor_parallel_test.cpp does not compare for all arrangements alike.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <thread>

#include "tests/jobs/divided_runs.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::DividedNetwork;
using test::Division;
using test::Ended;
using test::every_division;
using Words = std::vector<std::string>;

// Returns the most memory that a process had at once, in MiB.
double most_resident(pid_t process) {
  std::ifstream status(fmt::format("/proc/{}/status", process));
  std::string word;
  double kib = 0;
  while (status >> word)
    if (word == "VmHWM:") status >> kib;
  return kib / 1024;
}

class Pipelines : public test::DividedRuns {
 protected:
  void write(const DividedNetwork& network) { folder_.write("job.toml", network.text()); }
  // The options of `train run` for this number of workers, which need not fill their model replicas.
  static Words of_workers(int workers, const Division& most) {
    const std::string all = std::to_string(workers);
    return {"--arrangement", fmt::format("tp={},pp={},zero={}", most.tp, most.pp, most.zero),
            "--copies",      std::to_string(most.copies),
            "--workers",     all,
            "--min-workers", all};
  }
};

// Some stages have no parameters, others no more than a batch norm's, and the last one has the loss alone.
TEST_F(Pipelines, EachSegmentMayBeAStage) {
  for (const DividedNetwork& network : test::kDividedNetworks) {
    if (network.stages > 8 || (!every_division() && network.number < 3)) continue;
    write(network);
    const std::string name = network.name, alone = trained_result(name, {});
    for (const int zero : {0, 1, 2}) {
      if (!every_division() && zero != 2 * (network.number % 2)) continue;
      const Division division{.tp = 1, .pp = network.stages, .zero = zero, .copies = 1};
      EXPECT_EQ(trained_result(name + division.name(), division.complete()), alone) << name << ", zero=" << zero;
    }
  }
}

// Five workers are pipelines of three and two, whose stages have two members and one.
TEST_F(Pipelines, UnevenNumbersOfWorkersFormReplicasOfSeveralSizes) {
  for (const DividedNetwork& network : {test::kDividedNetworks[0], test::kDividedNetworks[3]}) {
    write(network);
    const std::string name = network.name, alone = trained_result(name, {});
    for (const Division& most : {Division{.tp = 2, .pp = 2}, {.tp = 1, .pp = 3, .zero = 2}, {.tp = 3, .pp = 2}})
      for (const int workers : {5, 2, 3, 4}) {
        const std::string run = fmt::format("{}{}-{}", name, most.name(), workers);
        EXPECT_EQ(trained_result(run, of_workers(workers, most)), alone) << run;
        if (!every_division()) break;
      }
    if (!every_division()) break;
  }
}

// With one virtual rank only one stage at a time has something to do, and with many there are more than stages.
TEST_F(Pipelines, AnyNumberOfVirtualRanksFlowsThroughThem) {
  write(test::kDividedNetworks[0]);
  for (const int ranks : {1, 6}) {
    if (!every_division() && ranks == 6) break;
    const Words settings = {"--set", fmt::format("run.virtual_ranks={}", ranks)};
    expect_undivided(settings, {{.tp = 1, .pp = 3}, {.tp = 2, .pp = 2, .zero = 2}, {.dp = 2, .tp = 1, .pp = 3}});
  }
}

// A stage contributes slices of tensors that are in several buckets, and another one their other gradients.
TEST_F(Pipelines, RankGradientsMayBeNamedInTheLedger) {
  for (const int network : {0, 3}) {
    write(test::kDividedNetworks[network]);
    expect_undivided({"--set", "ledger.leaves=all", "--set", fmt::format("run.seed={}", network)},
                     {{.tp = 1, .pp = 3, .zero = 2}, {.tp = 2, .pp = 2}, {.dp = 2, .tp = 1, .pp = 2, .zero = 1}});
    if (!every_division()) break;
  }
}

TEST_F(Pipelines, AProfileTellsOfTheStages) {
  write(test::kDividedNetworks[0]);
  const std::string alone = trained_result("alone", {});
  const Division division{.tp = 1, .pp = 2};
  EXPECT_EQ(trained_result("run", division.complete({"--profile=3-5"})), alone);
  EXPECT_NE(read_file(folder_ / "run.out").find("waiting for a stage"), std::string::npos)
      << read_file(folder_ / "run.out");
}

TEST_F(Pipelines, StatusTellsWhoComputesWhichSegments) {
  write(test::kDividedNetworks[0]);
  Words words = {"run", folder_ / "job.toml", "--run-dir", folder_ / "run", "--threads", "1", "--steps", "100000000"};
  for (const std::string& word : Division{.tp = 2, .pp = 2}.options()) words.push_back(word);
  const pid_t job = spawn(words, "run");
  reach("run", 3);
  const Json status = this->status("run");
  EXPECT_EQ(status.at("arrangement"), (Json{{"tp", 2}, {"pp", 2}}));
  std::map<int, std::vector<int>> shards;  // of each stage, how many its members compute
  std::map<int, Json> segments;
  for (const Json& worker : status.at("workers")) {
    const int stage = worker.at("stage");
    shards[stage].push_back(worker.at("virtual_shards").at(1).get<int>() - worker["virtual_shards"].at(0).get<int>());
    const auto [stated, first] = segments.try_emplace(stage, worker.at("segments"));
    EXPECT_EQ(stated->second, worker["segments"]) << "members of a stage compute the same segments";
  }
  EXPECT_EQ(shards.size(), 2u);
  for (const auto& [stage, all] : shards) EXPECT_EQ(all.size() == 2 ? all[0] + all[1] : 0, 4) << stage;
  // The embeddings and the head share a parameter.
  EXPECT_EQ(segments[0].size(), 1u);
  EXPECT_EQ(segments[1].front(), (Json{0, 1}));
  EXPECT_EQ(segments[1].back().at(1), 4);
  const auto ctl = [&](const std::string& request) {
    const Ended ended = wait(spawn({"ctl", folder_ / "run", request}, "ctl"), "ctl");
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out;
  };
  const std::string text = ctl("status");
  EXPECT_TRUE(std::regex_search(text, std::regex("computes segments 0 to 0 and 2 to 3, virtual shards \\d to \\d in "
                                                 "stage 1 of model replica 0\n|computes segments 0 to 0 and 3 to 3")))
      << text;
  ctl("stop");
  const Ended ended = wait(job, "run");
  EXPECT_EQ(ended.code, 0) << ended.err;
}

// The network is much larger than the program.
TEST_F(Pipelines, CheckForetellsTheirMemory) {
  folder_.write("job.toml", std::string(R"([run]
steps = 100000
batch_size = 8
virtual_ranks = 4
checkpoint_every = 2
[data]
kind = "synthetic_text"
size = 4000
tokens = "character"
context = 128
[optimizer]
kind = "adamw"
lr = 0.001
[model]
kind = "gpt"
layers = 6
heads = 4
channels = 256
)"));
  const Ended check = train({"check", folder_ / "job.toml", "--threads", "1", "--arrangement", "dp=1,pp=2"});
  EXPECT_EQ(check.code, 0) << check.err;
  const std::regex memory("memory +([0-9.]+) MiB on worker (\\d+):");
  std::map<int, double> stages;  // by worker
  for (std::sregex_iterator found(check.out.begin(), check.out.end(), memory), end; found != end; ++found)
    stages[std::stoi((*found)[2])] = std::stod((*found)[1]);
  ASSERT_EQ(stages.size(), 2u) << check.out;

  Words words = {"run", folder_ / "job.toml", "--run-dir", folder_ / "run", "--threads", "1"};
  for (const std::string& word : Division{.tp = 1, .pp = 2}.complete()) words.push_back(word);
  const pid_t job = spawn(words, "run");
  reach("run", 5);  // the second checkpoint is made
  std::map<int, double> peaks;
  const Json status = this->status("run");
  for (const Json& worker : status.at("workers")) peaks[worker.at("id")] = most_resident(worker.at("about").at("pid"));
  EXPECT_EQ(wait(spawn({"ctl", folder_ / "run", "stop"}, "ctl"), "ctl").code, 0);
  EXPECT_EQ(wait(job, "run").code, 0);
  for (const auto& [worker, foretold] : stages) {
    // On a loaded machine a checkpoint is still written while the next steps run.
    EXPECT_LT(peaks[worker], 1.25 * foretold) << worker;
    EXPECT_GT(peaks[worker], 0.8 * foretold) << worker;
  }
}

TEST_F(Pipelines, NoMoreStagesThanSegmentsThatCanBeDivided) {
  write(test::kDividedNetworks[0]);
  const std::string expected = "--arrangement pp=4 needs at least as many segments, but gpt has 3 that can be divided";
  const auto expect_refused = [&](Words words) {
    words.insert(words.end(), {"--arrangement", "dp=1,pp=4"});
    const Ended ended = train(words);
    EXPECT_EQ(ended.code, 2) << ended.err;
    EXPECT_NE(ended.err.find(expected), std::string::npos) << ended.err;
  };
  expect_refused({"check", folder_ / "job.toml"});
  expect_refused({"run", folder_ / "job.toml", "--run-dir", folder_ / "run"});
  EXPECT_FALSE(fs::exists(folder_ / "run")) << "nothing is begun";
  trained("run", {"--until", "3"});
  const std::string before = result("run");
  expect_refused({"run", folder_ / "job.toml", "--run-dir", folder_ / "run", "--resume"});
  EXPECT_EQ(result("run"), before);
}

}  // namespace
}  // namespace elinvar
