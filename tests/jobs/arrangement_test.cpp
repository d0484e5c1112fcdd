// Jobs that shard the optimizer's state over their workers (ZeRO, `--arrangement`): neither the arrangement nor a
// change of it shows in a ledger, in digests or in a checkpoint. arrangement_faults_test.cpp has the same with faults.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <csignal>
#include <filesystem>
#include <thread>

#include "elastic/step/arrangement.h"
#include "tensor/base/file.h"
#include "tests/jobs/tiny_job.h"
#include "tests/jobs/train_command.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::Ended;
using test::TinyJob;
using test::TrainCommand;
using Words = std::vector<std::string>;

bool all_arrangements() { return std::getenv("ELINVAR_FULL") != nullptr; }

struct Arranged {
  int zero = 1, copies = 2, workers = 2;
};
Words options(const Arranged& a, const Words& more = {}) {
  const std::string workers = std::to_string(a.workers);
  Words words = {"--workers",     workers,
                 "--min-workers", workers,
                 "--arrangement", fmt::format("zero={}", a.zero),
                 "--copies",      std::to_string(a.copies)};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}
std::string folder_of(const Arranged& a) { return fmt::format("zero{}-{}-{}", a.zero, a.copies, a.workers); }

// A job with the optimizer that is the parameter.
struct Kind {
  const char *name, *lines;
};
class OptimizerInShards : public TinyJob, public ::testing::WithParamInterface<Kind> {
 protected:
  OptimizerInShards() : TinyJob("", GetParam().lines) {}
};
INSTANTIATE_TEST_SUITE_P(
    , OptimizerInShards,
    ::testing::Values(Kind{"sgd", "kind = \"sgd\"\nmomentum = 0.0\nweight_decay = 0.01\n"},
                      Kind{"momentum", "kind = \"sgd\"\nnesterov = true\nclip_norm = 0.5\n"},
                      Kind{"lars", "kind = \"lars\"\nweight_decay = 0.01\nexempt = [\"vectors\"]\nema_decay = 0.9\n"},
                      Kind{"adam", "kind = \"adam\"\nema_decay = 0.9\n"},
                      Kind{"adamw", "kind = \"adamw\"\nweight_decay = 0.1\nclip_norm = 0.5\nema_decay = 0.9\n"},
                      Kind{"lamb", "kind = \"lamb\"\nweight_decay = 0.1\nclip_norm = 0.5\n"}),
    [](const auto& param) { return param.param.name; });

TEST_P(OptimizerInShards, WorkersAndCopiesShowNowhere) {
  std::vector<Arranged> all;
  for (const int zero : {1, 2})
    for (const int workers : {1, 2, 3})
      for (const int copies : {1, 2}) all.push_back({.zero = zero, .copies = copies, .workers = workers});
  if (all_arrangements()) all.push_back({.copies = 3, .workers = 4});
  else all = {{.copies = 1, .workers = 2}, {.zero = 2, .copies = 2, .workers = 3}};
  for (const Arranged& arranged : all)
    EXPECT_EQ(run_through(folder_of(arranged), options(arranged)), "") << folder_of(arranged);
}

// Each part of the run has another arrangement and begins with the checkpoint of the part before. The run is longer
// than others, because a part goes on for some time after the step at which it is to end.
TEST_P(OptimizerInShards, AnyCheckpointSuitsAnyArrangement) {
  const Words steps = {"--steps", "800"};
  const Ended alone = wait(start("alone", steps), "alone");
  ASSERT_EQ(alone.code, 0) << alone.err;
  std::vector<Arranged> parts = {
      {.copies = 1, .workers = 2}, {.zero = 0, .workers = 1}, {.zero = 2, .workers = 3}, {.copies = 1, .workers = 3}};
  for (const char* const name : {"run", "reversed"}) {
    for (size_t i = 0; i < parts.size(); ++i) {
      ASSERT_LT(recorded(name), 800) << "nothing is left to do";
      Words more = steps;
      if (i > 0) more.emplace_back("--resume");
      if (i + 1 < parts.size()) more.insert(more.end(), {"--until", std::to_string(recorded(name) + 5)});
      const Ended ended = wait(start(name, options(parts[i], more)), name);
      ASSERT_EQ(ended.code, 0) << i << ": " << ended.err;
    }
    EXPECT_EQ(ledger(name), ledger("alone"));
    EXPECT_EQ(digests(name), digests("alone"));
    std::reverse(parts.begin(), parts.end());
    if (!all_arrangements()) break;
  }
}

class ArrangedCommand : public TrainCommand {
 protected:
  std::string ledger_of(const std::string& config, const std::string& name, const Words& more) const {
    const Ended ended = run(config, name, more);
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ledger(name) + digests(name);
  }
  void expect_equal(const std::string& config, const Words& settings, const std::vector<Arranged>& all) const {
    const std::string name = fmt::format("{}{}", config, fmt::join(settings, ""));
    SCOPED_TRACE(name);
    const std::string alone = ledger_of(config, name + "-alone", settings);
    for (const Arranged& arranged : all)
      EXPECT_EQ(ledger_of(config, name + "-" + folder_of(arranged), options(arranged, settings)), alone)
          << folder_of(arranged);
  }
};

TEST_F(ArrangedCommand, NetworksOfImagesAndOfTextHaveTheSameLedger) {
  const std::vector<Arranged> all = {{.copies = 1, .workers = 3}, {.copies = 2, .workers = 2}};
  expect_equal("images.toml", {}, all);
  expect_equal("images.toml", {"--set", "run.recompute=true", "--numerics", "exact"}, all);
  expect_equal("text.toml", {}, all);
  expect_equal("text.toml", {"--set", "model.virtual_shards=2"}, all);
  expect_equal("text.toml", {"--set", "model.virtual_shards=2", "--numerics", "exact"}, all);
}

TEST_F(ArrangedCommand, NetworksWithOtherNormsHaveTheSameLedger) {
  folder_.write("resnet.toml", R"([run]
steps = 4
batch_size = 6
virtual_ranks = 3
state_digest_every = 2
[data]
kind = "synthetic"
size = 20
classes = 3
image_size = 8
[optimizer]
kind = "lars"
lr = 0.1
ema_decay = 0.9
[model]
kind = "resnet20"
)");
  expect_equal("resnet.toml", {}, {{.copies = 1, .workers = 3}, {.copies = 2, .workers = 2}});
}

TEST_F(ArrangedCommand, OtherDevicesJoinAndGoOn) {
#ifdef ELINVAR_EMULATION
  folder_.write("job.toml", std::string(test::kTrainText));
  const Words settings = {"--set", "run.steps=40", "--set", "optimizer.clip_norm=0.5"};
  const std::string alone = ledger_of("text.toml", "alone", settings);
  Words words = {"run", folder_ / "text.toml", "--run-dir", folder_ / "both", "--workers", "1",         "--min-workers",
                 "2",   "--arrangement",       "zero=1",    "--copies",       "1",         "--threads", "1"};
  words.insert(words.end(), settings.begin(), settings.end());
  const pid_t job = spawn(words, "both");
  for (int i = 0; i < 2000 && !fs::exists(folder_ / "both" / "coordinator.json"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const pid_t joined = spawn({"join", endpoint("both"), "--device", "emulated"}, "joined");
  const Ended ended = wait(job, "both"), other = wait(joined, "joined");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(other.code, 0) << other.err;
  EXPECT_EQ(ledger("both") + digests("both"), alone);
#else
  GTEST_SKIP() << "the other device is the emulated GPU (ELINVAR_EMULATION)";
#endif
}

// What reads a run finds in its checkpoints what it finds in those of one worker.
TEST_F(ArrangedCommand, CheckpointsServeAllCommands) {
  const Words settings = {"--set", "optimizer.ema_decay=0.9"};
  ledger_of("text.toml", "alone", settings);
  ledger_of("text.toml", "run", options({.copies = 1, .workers = 3}, settings));
  const auto said = [&](const Words& words) {
    const Ended ended = train(words);
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out;
  };
  for (const char* command : {"eval", "sample"}) {
    const Words more = std::string(command) == "eval" ? Words{"--json"} : Words{"--prompt", "the", "--tokens", "20"};
    const auto of = [&](const std::string& name) {
      Words words = {command, folder_ / name};
      words.insert(words.end(), more.begin(), more.end());
      return said(words);
    };
    EXPECT_EQ(of("run"), of("alone")) << command;
  }
  for (const char* name : {"run", "alone"})
    said({"export", folder_ / name, folder_ / (std::string(name) + ".safetensors")});
  EXPECT_EQ(read_file(folder_ / "run.safetensors"), read_file(folder_ / "alone.safetensors"));
  const auto repro = [&](const Words& words) {
    const Ended ended = wait(spawn_program("repro", words, "repro"), "repro");
    EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
    return ended.out;
  };
  EXPECT_EQ(repro({"diff", folder_ / "run", folder_ / "alone"}),
            "equal: steps 1 to 8, and the state after 1 of them\n");
  repro({"verify", folder_ / "run", "--from", "0", "--threads", "1"});
  repro({"verify", folder_ / "run", "--from", "0", "--arrangement", "dp=2,zero=2", "--threads", "1"});
  repro({"digest", folder_ / "run"});
}

TEST_F(ArrangedCommand, ImportedWeightsAndKeptCheckpointsAreBegunWith) {
  ledger_of("text.toml", "first", options({.copies = 1, .workers = 2}));
  ASSERT_EQ(train({"export", folder_ / "first", folder_ / "first.safetensors"}).code, 0);
  std::string expected;
  for (const Arranged& arranged : {Arranged{.zero = 0, .workers = 1}, {.copies = 1, .workers = 2}, {.workers = 3}}) {
    const std::string name = folder_of(arranged);
    const Ended imported =
        train({"import", folder_ / "first.safetensors", folder_ / "text.toml", folder_ / name, "--set", "run.seed=7"});
    ASSERT_EQ(imported.code, 0) << imported.err;
    Words more = options(arranged);
    more.insert(more.end(), {"--resume", "--set", "run.seed=7"});
    const std::string found = ledger_of("text.toml", name, more);
    if (expected.empty()) expected = found;
    EXPECT_EQ(found, expected) << name;
  }
}

TEST_F(ArrangedCommand, ImpossibleArrangementsAreRefused) {
  const auto error = [&](const Words& words) {
    const Ended ended = run("images.toml", "refused", words);
    EXPECT_EQ(ended.code, 2) << ended.err;
    EXPECT_FALSE(fs::exists(folder_ / "refused")) << "nothing is begun";
    return ended.err;
  };
  const auto expect_error = [&](const std::string& wrong, const std::string& expected) {
    const std::string told = error({"--arrangement", wrong});
    const std::string last = wrong.substr(wrong.rfind(',') + 1);
    EXPECT_NE(told.find(fmt::format("expected {}, got '{}'", expected, last)), std::string::npos) << told;
  };
  for (const char* wrong : {"zero=7", "zero=-1", "zero=1x", "zero=", "zero", "tp=2,zero=4"})
    expect_error(wrong, fmt::format("zero=0 to zero={}", kMostZero));
  for (const char* wrong : {"tp=0", "zero=1,tp=", "tp=1025"})
    expect_error(wrong, fmt::format("tp=1 to tp={}", kMostParallel));
  for (const char* wrong : {"pp=0", "zero=1,pp=", "pp=1025"})
    expect_error(wrong, fmt::format("pp=1 to pp={}", kMostParallel));
  for (const char* wrong : {"Zero=1", " zero=1", "ep=2", "zero=1,"})
    expect_error(wrong, "dp=N, tp=N, pp=N, zero=N or copies=N");
  EXPECT_NE(error({"--arrangement", "tp=2"}).find("model.virtual_shards = 1"), std::string::npos);
  EXPECT_NE(error({"--arrangement", "dp=2,zero=1", "--workers", "3"}).find("has 2 workers, but --workers is 3"),
            std::string::npos);
  for (const char* wrong : {"0", "-1", "many", "1025"})
    EXPECT_NE(error({"--arrangement", "zero=1", "--copies", wrong}).find("--copies"), std::string::npos) << wrong;
}

class AdaptiveInShards : public TinyJob {
 protected:
  AdaptiveInShards() : TinyJob("", "kind = \"adamw\"\nema_decay = 0.9\n") {}
};

// The batch follows the number of workers, so the run is compared with its own repetitions.
TEST_F(AdaptiveInShards, ItsLedgerSufficesToRepeatIt) {
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
  done("run", {"--workers", "2", "--arrangement", "zero=1", "--chaos",
               "join:step=20;kill:worker=2,step=100;join:step=120;kill:coordinator,step=150"});
  done("alone", {"--replay", folder_ / "run"});
  EXPECT_EQ(ledger("alone"), ledger("run"));
  done("again", {"--replay", folder_ / "run", "--workers", "3", "--arrangement", "zero=1", "--copies", "1", "--chaos",
                 "kill:worker=2,step=50"});
  EXPECT_EQ(ledger("again"), ledger("run"));
}

}  // namespace
}  // namespace elinvar
