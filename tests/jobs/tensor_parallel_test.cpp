// Jobs whose workers compute each rank gradient together (tensor and pipeline parallelism, `--arrangement
// dp=2,tp=2,pp=2`): who computes which virtual shards and segments shows neither in a ledger, nor in digests, scores or
// checkpoints. pipeline_test.cpp has what is peculiar to pipelines, tensor_parallel_faults_test.cpp the same with
// faults.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <thread>

#include "data/dataset.h"
#include "tensor/base/file.h"
#include "tests/jobs/divided_runs.h"
#include "tests/jobs/tiny_job.h"
#include "tools/config/config.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::DividedNetwork;
using test::DividedRuns;
using test::Division;
using test::Ended;
using test::every_division;
using Words = std::vector<std::string>;

class DividedNetworks : public DividedRuns, public ::testing::WithParamInterface<DividedNetwork> {
 protected:
  void SetUp() override { folder_.write("job.toml", GetParam().text()); }
};
INSTANTIATE_TEST_SUITE_P(, DividedNetworks, ::testing::ValuesIn(test::kDividedNetworks),
                         [](const auto& param) { return param.param.name; });

// All divisions among up to six workers with ELINVAR_FULL, otherwise others for each network.
TEST_P(DividedNetworks, EveryDivisionGivesTheResultOfOneWorker) {
  const auto data = open_dataset(read_config(folder_ / "job.toml").data, Split::train);
  EXPECT_TRUE(data->size() < 60 && data->size() % 6 >= 2 && data->size() % 6 <= 3) << "a batch must be short";
  std::vector<Division> divisions;
  int number = 7 * GetParam().number;
  for (int tp = 1; tp <= GetParam().shards; ++tp)
    for (int pp = 1; pp <= GetParam().stages; ++pp)
      for (int dp = 1; dp * tp * pp <= 6; ++dp)
        for (const auto& [zero, copies] : {std::pair{0, 1}, {1, 1}, {1, 2}, {2, 1}, {2, 2}})
          if (every_division() || (tp * pp > 1 && number++ % 18 == 0))
            divisions.push_back({.dp = dp, .tp = tp, .pp = pp, .zero = zero, .copies = copies});
  expect_undivided({}, divisions);
}

TEST_P(DividedNetworks, ExactNumericsAndRecomputingDoSoToo) {
  const Words exact = {"--numerics", "exact"}, recomputed = {"--set", "run.recompute=true"};
  Words both = exact;
  both.insert(both.end(), recomputed.begin(), recomputed.end());
  const int shards = GetParam().shards;
  if (!every_division()) return expect_undivided(both, {{.tp = shards, .pp = 1 + 4 / (shards + 1), .zero = 2}});
  std::vector<Division> divisions;
  for (int tp = 1; tp <= shards; ++tp)
    for (int pp = tp > 1 ? 1 : 2; pp <= 3; ++pp)
      for (int zero = 0; zero <= 2; ++zero) divisions.push_back({.tp = tp, .pp = pp, .zero = zero, .copies = 1});
  for (const Words& settings : {exact, recomputed, both}) expect_undivided(settings, divisions);
}

// Each part begins with the checkpoint of the part before. The run is longer than others, because a part goes on for
// some time after the step at which it is to end.
TEST_F(DividedRuns, AnyCheckpointSuitsAnyDivision) {
  constexpr int64_t kLast = 300;
  const Words settings = {"--set", "run.eval_every=0", "--steps", std::to_string(kLast)};
  for (const DividedNetwork& network : test::kDividedNetworks) {
    folder_.write("job.toml", network.text());
    const std::string name = network.name;
    const std::string alone = trained_result(name + "alone", settings);
    const auto tp = [&](int most) { return std::min(most, network.shards); };
    const Division parts[] = {{.tp = tp(2)},
                              {.dp = 2, .tp = 1, .zero = 1, .copies = 1},
                              {.tp = 1, .pp = 3, .zero = 1},
                              {.tp = tp(4), .zero = 2},
                              {.dp = 2, .tp = tp(2)},
                              {.tp = tp(2), .pp = 2, .zero = 2, .copies = 1},
                              {.dp = 2, .tp = tp(3), .zero = 2, .copies = 1},
                              {.dp = 2, .tp = 1, .pp = 2},
                              {.tp = 1}};
    for (const Division& part : parts) {
      ASSERT_LT(recorded(name), kLast) << "nothing is left to do";
      Words more = part.complete(settings);
      if (recorded(name) > 0) more.emplace_back("--resume");
      if (&part != std::end(parts) - 1) more.insert(more.end(), {"--until", std::to_string(recorded(name) + 5)});
      trained(name, more);
    }
    EXPECT_EQ(result(name), alone) << name;
    if (!every_division()) break;
  }
}

class DividedGpt : public DividedRuns {
 protected:
  void SetUp() override { folder_.write("job.toml", test::kDividedNetworks[0].text()); }
};

// Tensors of several buckets, cut and whole, are in other places among the buckets than among the parameters.
TEST_F(DividedRuns, LargeTensorsAreInManyBuckets) {
  folder_.write("job.toml", R"([run]
steps = 2
batch_size = 4
virtual_ranks = 2
state_digest_every = 1
[data]
kind = "synthetic"
size = 8
classes = 4
image_size = 16
[optimizer]
kind = "lamb"
lr = 0.01
clip_norm = 0.1
[model]
virtual_shards = 2
[[model.layer]]
kind = "flatten"
[[model.layer]]
kind = "linear"
out = 1600
[[model.layer]]
kind = "layer_norm"
[[model.layer]]
kind = "linear"
)");
  const std::string alone = trained_result("alone", {});
  for (const Division& division : {Division{}, {.zero = 1, .copies = 1}, {.dp = 2, .zero = 2}})
    EXPECT_EQ(trained_result(division.name(), division.complete()), alone) << division.name();
}

#ifdef ELINVAR_EMULATION
// The job's first worker has one device and the one that joins it the other.
TEST_F(DividedGpt, CpuAndGpuFormOneReplica) {
  struct Pair {
    std::string name, first, second;
    Division division;
    Words settings;
  };
  const std::vector<Pair> pairs = {
      {"cpu", "cpu", "emulated", {.tp = 3}, {"--steps", "4"}},
      {"gpu", "emulated", "cpu", {.zero = 2, .copies = 1}, {"--steps", "4", "--set", "run.cuda_graphs=true"}},
      {"exact", "cpu", "emulated", {.zero = 1}, {"--steps", "12", "--numerics", "exact"}},
      {"recomputed", "emulated", "cpu", {.tp = 3}, {"--steps", "12", "--set", "run.recompute=true"}},
      {"stages", "cpu", "emulated", {.tp = 1, .pp = 2}, {"--steps", "6"}},
      {"first", "emulated", "cpu", {.tp = 2, .pp = 2, .zero = 2}, {"--steps", "6", "--set", "run.recompute=true"}},
      {"third", "cpu", "emulated", {.tp = 1, .pp = 3, .zero = 1}, {"--steps", "6", "--numerics", "exact"}}};
  for (const auto& [name, first, second, division, settings] : pairs) {
    if (!every_division() && name != "cpu" && name != "gpu" && name != "stages") continue;
    const std::string alone = trained_result(name + "-alone", settings);
    Words words = {"run", folder_ / "job.toml", "--run-dir", folder_ / name, "--threads", "1", "--device", first};
    words.insert(words.end(),
                 {"--arrangement", fmt::format("tp={},pp={},zero={}", division.tp, division.pp, division.zero)});
    words.insert(words.end(),
                 {"--copies", std::to_string(division.copies), "--workers", std::to_string(division.workers() - 1),
                  "--min-workers", std::to_string(division.workers())});
    words.insert(words.end(), settings.begin(), settings.end());
    const pid_t job = spawn(words, name);
    for (int i = 0; i < 2000 && !fs::exists(folder_ / name / "coordinator.json"); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const pid_t joined = spawn({"join", endpoint(name), "--device", second, "--threads", "1"}, "joined");
    const Ended ended = wait(job, name), other = wait(joined, "joined");
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(other.code, 0) << other.err;
    EXPECT_EQ(result(name), alone) << name;
    EXPECT_EQ(read_file(folder_ / name / "events.jsonl").find(R"("plane":"nccl")"), std::string::npos)
        << "one of them has no GPU";
    // Others may follow, as the workers' speeds become known.
    for (const size_t members : generations(name)) EXPECT_EQ(members, static_cast<size_t>(division.workers()));
  }
}

TEST_F(DividedGpt, GpusOfOneKindComputeFastTogether) {
  for (const std::string precision : {"bf16", "tf32"}) {
    const Words settings = {"--numerics", "fast",     "--set",   fmt::format("run.precision=\"{}\"", precision),
                            "--device",   "emulated", "--steps", "3"};
    const std::string alone = trained_result(precision + "alone", settings);
    EXPECT_EQ(trained_result(precision + "three", Division{.tp = 3, .zero = 2}.complete(settings)), alone);
    EXPECT_EQ(trained_result(precision + "pipeline", Division{.tp = 1, .pp = 2}.complete(settings)), alone);
    if (!every_division()) break;
    EXPECT_EQ(trained_result(precision + "two", Division{}.complete(settings)), alone);
    EXPECT_EQ(trained_result(precision + "stages", Division{.pp = 3, .zero = 2}.complete(settings)), alone);
  }
}
#endif

TEST_F(DividedGpt, AuditsWithoutFaultsFindNothing) {
  const std::string alone = trained_result("alone", {});
  for (const Division& division : {Division{},
                                   {.dp = 2, .zero = 1, .copies = 1},
                                   {.tp = 3, .zero = 2},
                                   {.tp = 1, .pp = 3},
                                   {.dp = 2, .tp = 1, .pp = 2, .zero = 2},
                                   {.tp = 2, .pp = 2, .zero = 1}}) {
    const std::string name = division.name();
    EXPECT_EQ(trained_result(name, division.complete({"--set", "run.audit_every=1"})), alone) << name;
    EXPECT_EQ(read_file(folder_ / name / "events.jsonl").find("verdict"), std::string::npos) << name;
  }
}

// What reads a run finds in its checkpoints what it finds in those of one worker, and a division can repeat a run.
TEST_F(DividedGpt, CheckpointsServeAllCommands) {
  const std::string alone = trained_result("alone", {});
  const Division division{.tp = 2, .pp = 2, .zero = 1};
  EXPECT_EQ(trained_result("run", division.complete()), alone);
  const auto said = [&](const Words& words) {
    const Ended ended = train(words);
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out;
  };
  EXPECT_EQ(said({"eval", folder_ / "run", "--json"}), said({"eval", folder_ / "alone", "--json"}));
  const Words prompt = {"--prompt", "17+25", "--tokens", "20"};
  const auto sampled = [&](const std::string& name) {
    Words words = {"sample", folder_ / name};
    words.insert(words.end(), prompt.begin(), prompt.end());
    return said(words);
  };
  EXPECT_EQ(sampled("run"), sampled("alone"));
  for (const std::string name : {"run", "alone"}) said({"export", folder_ / name, folder_ / (name + ".safetensors")});
  EXPECT_EQ(read_file(folder_ / "run.safetensors"), read_file(folder_ / "alone.safetensors"));

  EXPECT_EQ(trained_result("again", Division{.dp = 2}.complete({"--replay", folder_ / "alone"})), alone);
  EXPECT_EQ(trained_result("stages", Division{.tp = 1, .pp = 3}.complete({"--replay", folder_ / "alone"})), alone);
  EXPECT_EQ(trained_result("back", {"--replay", folder_ / "run"}), alone);
  const auto repro = [&](const Words& words) {
    const Ended ended = wait(spawn_program("repro", words, "repro"), "repro");
    EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
    return ended.out;
  };
  repro({"verify", folder_ / "run", "--from", "0", "--arrangement", "tp=2,zero=1", "--threads", "1"});
  EXPECT_EQ(repro({"diff", folder_ / "run", folder_ / "alone"}).find("equal: steps 1 to 12"), 0u);

  std::string expected;
  for (const Division& each : {Division{.tp = 1}, {.tp = 4, .zero = 2}, {.tp = 1, .pp = 3}}) {
    const std::string name = "imported-" + each.name();
    said({"import", folder_ / "run.safetensors", folder_ / "job.toml", folder_ / name, "--set", "run.seed=7"});
    const std::string found = trained_result(name, each.complete({"--resume", "--set", "run.seed=7"}));
    if (expected.empty()) expected = found;
    EXPECT_EQ(found, expected) << name;
  }
}

TEST_F(DividedGpt, AReplicaMayHaveNoVirtualRanks) {
  const Words settings = {"--set", "run.virtual_ranks=2", "--set", "run.audit_every=1"};
  const std::string alone = trained_result("alone", settings);
  for (const Division& division :
       {Division{.dp = 3}, {.dp = 3, .zero = 2, .copies = 1}, {.dp = 3, .tp = 1, .pp = 2, .zero = 2}})
    EXPECT_EQ(trained_result(division.name(), division.complete(settings)), alone) << division.name();
}

TEST_F(DividedGpt, StatusTellsWhoComputesWhichShards) {
  // Returns the workers of each replica. Those of one must have all shards, in order.
  const auto replicas = [&] {
    std::map<int, std::vector<int>> workers;
    std::map<int, int> shards;
    for (const Json& worker : status("run").value("workers", Json::array())) {
      const int replica = worker.value("replica", -1);
      const Json own = worker.value("virtual_shards", Json{-1, -1});
      workers[replica].push_back(worker.at("id"));
      if (own.at(0) != shards[replica] || own.at(0) >= own.at(1)) return std::map<int, std::vector<int>>();
      shards[replica] = own.at(1);
    }
    for (const auto& [replica, end] : shards)
      if (end != 4) return std::map<int, std::vector<int>>();
    return workers;
  };
  const auto expect_replicas = [&](const std::map<int, std::vector<int>>& expected) {
    for (int i = 0; i < 200 && replicas() != expected; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(replicas(), expected);
  };
  Words words = {"run", folder_ / "job.toml", "--run-dir", folder_ / "run", "--threads", "1", "--steps", "100000000"};
  for (const std::string& word : Division{.dp = 2}.options()) words.push_back(word);
  const pid_t job = spawn(words, "run");
  reach("run", 3);
  EXPECT_EQ(status("run").at("arrangement"), (Json{{"tp", 2}, {"pp", 1}}));
  expect_replicas({{0, {1, 2}}, {1, {3, 4}}});
  const auto ctl = [&](const Words& request) {
    Words arguments = {"ctl", folder_ / "run"};
    arguments.insert(arguments.end(), request.begin(), request.end());
    EXPECT_EQ(wait(spawn(arguments, "ctl"), "ctl").code, 0);
  };
  ctl({"drain", "2"});
  expect_replicas({{0, {1, 3}}, {1, {4}}});
  ctl({"stop"});
  const Ended ended = wait(job, "run");
  EXPECT_EQ(ended.code, 0) << ended.err;
}

TEST_F(DividedGpt, NoMoreWorkersThanShardsFormAReplica) {
  const auto expect_refused = [&](Words words) {
    words.insert(words.end(), {"--arrangement", "zero=1,tp=5"});
    const Ended ended = train(words);
    EXPECT_EQ(ended.code, 2) << ended.err;
    EXPECT_NE(ended.err.find("tp=5 needs at least as many virtual shards, but model.virtual_shards = 4"),
              std::string::npos)
        << ended.err;
  };
  expect_refused({"check", folder_ / "job.toml"});
  expect_refused({"run", folder_ / "job.toml", "--run-dir", folder_ / "run"});
  EXPECT_FALSE(fs::exists(folder_ / "run")) << "nothing is begun";
  trained("run", {"--until", "3"});
  const std::string before = result("run");
  expect_refused({"run", folder_ / "job.toml", "--run-dir", folder_ / "run", "--resume"});
  EXPECT_EQ(result("run"), before);
}

class AdaptiveInReplicas : public test::TinyJob {
 protected:
  AdaptiveInReplicas() : TinyJob("", "kind = \"adamw\"\nema_decay = 0.9\n", test::kTinyShards) {}
};

// The batch follows the number of workers, so the run is compared with its own repetitions.
TEST_F(AdaptiveInReplicas, ItsLedgerSufficesToRepeatIt) {
  const Words settings = {"--set", "run.scaling=adaptive", "--set",   "run.batch_max=12",
                          "--set", "run.ramp_steps=60",    "--steps", "400"};
  const auto done = [&](const std::string& name, Words words) {
    words.insert(words.end(), settings.begin(), settings.end());
    for (int part = 0; part < 5; ++part) {
      const Ended ended = wait(start(name, words), name);
      if (ended.code == 0) return;
      ASSERT_EQ(ended.code, 128 + SIGKILL) << ended.err;
      if (part == 0) words.emplace_back("--resume");
    }
    FAIL() << "it is killed again and again";
  };
  done("run", Division{.zero = 1}.options(
                  {"--chaos", "join:step=20;kill:worker=2,step=100;join:step=120;kill:coordinator,step=150"}));
  done("alone", {"--replay", folder_ / "run"});
  EXPECT_EQ(ledger("alone"), ledger("run"));
  done("again", Division{.tp = 3}.options({"--replay", folder_ / "run", "--chaos", "kill:worker=2,step=50"}));
  EXPECT_EQ(ledger("again"), ledger("run"));
  done("stages", Division{.tp = 1, .pp = 3, .zero = 2}.options(
                     {"--replay", folder_ / "run", "--chaos", "kill:worker=2,step=50;join:step=70"}));
  EXPECT_EQ(ledger("stages"), ledger("run"));
}

}  // namespace
}  // namespace elinvar
