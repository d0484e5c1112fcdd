// Faults in jobs that shard the optimizer's state over their workers (ZeRO): whoever dies, at whatever point of a step,
// the run ends as that of one undisturbed worker. If nobody is left who keeps some part of the state, the run restores
// a checkpoint by itself (event "state_lost").
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "elastic/session/chaos.h"
#include "tensor/base/file.h"
#include "tests/jobs/tiny_job.h"
#include "tests/support/environment.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::Ended;
using Words = std::vector<std::string>;

bool full() { return std::getenv("ELINVAR_FULL") != nullptr; }

constexpr const char* kAdamW = "kind = \"adamw\"\nweight_decay = 0.1\nclip_norm = 0.5\n";
constexpr const char* kLamb = "kind = \"lamb\"\nweight_decay = 0.1\nclip_norm = 0.5\n";

// A job whose optimizer keeps two numbers for each parameter.
class ShardFaults : public test::TinyJob {
 protected:
  explicit ShardFaults(const char* optimizer = kAdamW, const std::string& run = {}) : TinyJob(run, optimizer) {}

  static Words options(int workers, int copies, const std::string& chaos = {}, const Words& more = {}, int zero = 1) {
    Words words = {"--workers", std::to_string(workers), "--arrangement", fmt::format("zero={}", zero),
                   "--copies",  std::to_string(copies)};
    if (!chaos.empty()) words.insert(words.end(), {"--chaos", chaos});
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  size_t count(const std::string& name, const std::string& event) const {
    size_t n = 0;
    for (const Json& each : events(name, "event")) n += each["event"] == event;
    return n;
  }
};

TEST_F(ShardFaults, AKilledKeeperLosesNothingIfThereIsACopy) {
  EXPECT_EQ(run_through("run", options(3, 2, "kill:worker=2,step=30;join:step=50;kill:worker=1,step=110")), "");
  EXPECT_EQ(count("run", "kill"), 2u);
  EXPECT_EQ(count("run", "state_lost"), 0u);
}

TEST_F(ShardFaults, WithoutACopyTheRunRestoresACheckpointByItself) {
  const Ended ended =
      wait(start("run", options(3, 1, "kill:worker=2,step=70;join:step=80;kill:worker=3,step=120")), "run");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ledger("run"), undisturbed());
  EXPECT_EQ(digests("run"), digests("whole"));
  EXPECT_EQ(count("run", "state_lost"), 2u);
  for (const Json& lost : events("run", "restored")) {
    EXPECT_EQ(lost.at("restored").get<int64_t>() % 40, 0) << "it is not a checkpoint of run.checkpoint_every";
    EXPECT_NE(lost.at("reason"), "");
  }
}

TEST_F(ShardFaults, BeforeTheFirstCheckpointTheRunBeginsAgain) {
  EXPECT_EQ(run_through("run", options(3, 1, "kill:worker=3,step=20")), "");
  const std::vector<Json> lost = events("run", "restored");
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].at("restored"), 0);
}

// Each loss brings other workers, as a start does.
TEST_F(ShardFaults, ARunThatGetsFurtherMayLoseItsStateManyTimes) {
  constexpr int kLosses = 12;
  std::string chaos;
  for (int i = 1; i <= kLosses; ++i) chaos += fmt::format("{}kill:worker=0,step={}", i > 1 ? ";" : "", 10 * i);
  // On a busy machine a kill may come so late that the next one strikes with it.
  size_t losses = 0;
  for (int run = 0; run < 8 && losses < kLosses && !HasFailure(); ++run) {
    const std::string name = fmt::format("run{}", run);
    EXPECT_EQ(run_through(name, options(2, 1, chaos, {"--min-workers", "2"})), "");
    losses = count(name, "state_lost");
  }
  EXPECT_EQ(losses, size_t{kLosses});
}

// The others have made parts of the first update when they return to the initial state.
TEST_F(ShardFaults, AnInterruptedFirstUpdateIsUndone) {
  for (const int zero : {1, 2}) {
    const std::string name = std::to_string(zero);
    EXPECT_EQ(run_through(name, options(3, 1, "kill:worker=2,step=1,at=update", {}, zero)), "");
    EXPECT_EQ(count(name, "state_lost"), 1u);
  }
}

// Workers that leave in peace hand over what they alone keep.
// The stall leaves the first drain the time to take place.
TEST_F(ShardFaults, LeavingAndJoiningLosesNothing) {
  const std::string chaos =
      "drain:worker=2,step=15;join:step=30;stall:worker=0,step=45,seconds=0.3;drain:worker=1,step=60";
  EXPECT_EQ(run_through("run", options(3, 1, chaos)), "");
  EXPECT_GE(count("run", "left"), 1u);  // the run may end before the second
  EXPECT_EQ(count("run", "state_lost"), 0u);
}

TEST_F(ShardFaults, StallsMessagesThatAreLostAndAllDeathsAreOvercome) {
  EXPECT_EQ(run_through("stalls", options(3, 1,
                                          "stall:worker=2,step=30,seconds=0.2;stall:worker=0,step=60,seconds=0.2;"
                                          "drop:worker=2,step=80;drop:worker=0,step=100")),
            "");
  EXPECT_EQ(run_through("all", options(3, 2, "kill:all,step=70;kill:coordinator,step=100")), "");
  // A stall that is longer than the limit of silence: with one copy the state of that worker counts as lost.
  for (const int copies : {1, 2})
    EXPECT_EQ(run_through(fmt::format("long{}", copies), options(3, copies, "stall:worker=2,step=30,seconds=4")), "");
}

TEST_F(ShardFaults, AWorkerTakesOverFromTheKilledCoordinator) {
  for (const int copies : {1, 2}) {
    const std::string name = fmt::format("run{}", copies);
    const pid_t job = start(name, options(3, copies, "kill:coordinator,step=60"));
    EXPECT_EQ(wait(job, name).code, 128 + SIGKILL);
    const fs::path result = folder_ / name / "result.json";
    const auto over = [&] { return fs::exists(result) && read_file(result).find("\"finished\"") != std::string::npos; };
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!over() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ASSERT_TRUE(over()) << read_file(folder_ / (name + ".err"));
    EXPECT_EQ(ledger(name), undisturbed());
    EXPECT_EQ(digests(name), digests("whole"));
    EXPECT_EQ(remaining_children(std::chrono::seconds(30)), "");
    for (const Json& generation : events(name, "members")) EXPECT_GE(generation.at("members").size(), 1u);
  }
}

// A job that is the parameter's: with LAMB an update has one more exchange.
class KillPoints : public ShardFaults, public ::testing::WithParamInterface<const char*> {
 protected:
  KillPoints() : ShardFaults(GetParam()) {}
};
INSTANTIATE_TEST_SUITE_P(, KillPoints, ::testing::Values(kAdamW, kLamb),
                         [](const auto& param) { return param.index == 0 ? "adamw" : "lamb"; });

// The leader, another worker, and both dying at the same point.
TEST_P(KillPoints, AtEachOfThemTheOthersGoOn) {
  const auto first = static_cast<int>(GetParam() == kLamb);
  int number = 0;
  for (const int copies : {1, 2}) {
    for (int point = 0; point <= static_cast<int>(Fault::Point::value); ++point) {
      const std::string at = name_of(static_cast<Fault::Point>(point));
      if (at == "within" || at == "boundary") continue;  // each worker computes its rank gradients alone
      for (const int victim : {0, 2}) {
        if (!full() && (++number + first) % 2 == 0) continue;
        const std::string name = fmt::format("{}-{}-{}", at, copies, victim);
        SCOPED_TRACE(name);
        const std::string chaos = fmt::format("kill:worker={},step=60,at={};join:step=90", victim, at);
        const Ended ended = wait(start(name, options(3, copies, chaos)), name, std::chrono::seconds(60));
        EXPECT_EQ(ended.code, 0) << ended.err;
        EXPECT_EQ(ledger(name), undisturbed());
        EXPECT_EQ(digests(name), digests("whole"));
        EXPECT_EQ(remaining_children(std::chrono::seconds(10)), "");
        const std::vector<Json> dead = events(name, "at");
        // Only the first member sends no part of the trailer.
        const bool comes_there = at != "part" || victim != 0;
        EXPECT_EQ(dead.size(), comes_there ? 1u : 0u);
        if (!dead.empty()) {
          EXPECT_EQ(dead[0].at("at"), at);
          EXPECT_EQ(dead[0].at("step"), 60);
        }
        EXPECT_EQ(count(name, "state_lost"), copies == 1 && comes_there ? 1u : 0u);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(KillPoints, TwoThatDieInOneStepAreSurvivedByTheThird) {
  int number = 0;
  for (const char* other : {"contribute", "trailer", "update", "value"})
    for (const char* at : {"sum", "part", "update", "value"}) {
      if (!full() && ++number % 4 != (GetParam() == kLamb ? 1 : 3)) continue;
      const std::string name = fmt::format("{}-{}", at, other);
      SCOPED_TRACE(name);
      const std::string chaos = fmt::format("kill:worker=2,step=60,at={};kill:worker=3,step=60,at={}", at, other);
      EXPECT_EQ(run_through(name, options(3, 3, chaos)), "");
      EXPECT_EQ(count(name, "state_lost"), 0u);
      EXPECT_EQ(run_through(name + "-2", options(3, 2, chaos)), "");
    }
}

// ELINVAR_CHAOS and ELINVAR_CHAOS_SEED as in chaos_test.cpp.
TEST_F(ShardFaults, RandomSchedulesEndAsTheUndisturbedRun) {
  const int64_t runs = test::from_environment("ELINVAR_CHAOS", full() ? 60 : 6),
                first = test::from_environment("ELINVAR_CHAOS_SEED", 0);
  for (int64_t seed = first; seed < first + runs; ++seed) {
    const int copies = 1 + static_cast<int>(seed % 2), workers = 2 + static_cast<int>(seed / 2 % 3);
    const int zero = 1 + static_cast<int>(seed / 2 % 2);
    std::string chaos = fmt::format("random:seed={},rate={}", seed, seed % 3 == 0 ? 0.06 : 0.02);
    if (seed % 4 == 1) chaos += fmt::format(";kill:coordinator,step={}", 1 + seed * 37 % 150);
    if (seed % 5 == 2) chaos += fmt::format(";kill:all,step={}", 1 + seed * 53 % 150);
    if (seed % 6 == 3) chaos += fmt::format(";drop:worker=0,step={}", 1 + seed * 71 % 150);
    const std::string name = fmt::format("seed{}", seed);
    const std::string wrong = run_through(name, options(workers, copies, chaos, {}, zero));
    if (!wrong.empty()) {
      ADD_FAILURE() << wrong << "\nseed " << seed << ", zero " << zero << ", copies " << copies << ", workers "
                    << workers << ", " << chaos;
      return;
    }
    fs::remove_all(folder_ / name);
  }
}

// Audits with injected flips. Where a bit flips in what an audit computes twice, the worker is found as without ZeRO.
class ShardAudits : public ShardFaults {
 protected:
  ShardAudits() : ShardFaults(kAdamW) {}
  Ended audit(const std::string& name, int workers, int copies, const std::string& flip) const {
    return wait(start(name, options(workers, copies, flip, {"--set", "run.audit_every=1"})), name);
  }
  std::vector<int> guilty(const std::string& name) const {
    std::vector<int> workers;
    for (const Json& found : events(name, "verdict"))
      if (found.at("verdict") == "guilty")
        for (const Json& worker : found.at("workers")) workers.push_back(worker.get<int>());
    return workers;
  }
  void expect_found(const std::string& name, int worker, const Ended& ended) const {
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(ledger(name), undisturbed());
    EXPECT_EQ(digests(name), digests("whole"));
    EXPECT_EQ(guilty(name), std::vector<int>{worker});
  }
};

TEST_F(ShardAudits, WithoutFaultsNothingIsFound) {
  for (const int copies : {1, 2}) {
    const std::string name = fmt::format("run{}", copies);
    EXPECT_EQ(run_through(name, options(3, copies, {}, {"--set", "run.audit_every=1"})), "");
    EXPECT_TRUE(events(name, "verdict").empty());
  }
}

// Also where most workers have their parameters from the damaged one: with three copies each of the three has made its
// own update, and with one copy only the damaged worker's parameters have changed after the update.
TEST_F(ShardAudits, AWrongGradientOrStateIsFoundAndItsWorkerEvicted) {
  expect_found("leaf1", 2, audit("leaf1", 3, 1, "flip:worker=2,step=59,bit=27"));
  expect_found("leaf2", 2, audit("leaf2", 3, 2, "flip:worker=2,step=59,bit=27"));
  expect_found("parameter1", 2, audit("parameter1", 3, 1, "flip:worker=2,step=59,bit=20,what=parameter"));
  expect_found("parameter3", 2, audit("parameter3", 3, 3, "flip:worker=2,step=59,bit=20,what=parameter"));
  expect_found("optimizer3", 2, audit("optimizer3", 3, 3, "flip:worker=2,step=59,bit=27,what=optimizer"));
}

// One of two keepers differs from the other, and whoever keeps neither copy has what the owner sent. No worker has room
// for a replay, so nobody can tell who is right: all go back to a checkpoint.
TEST_F(ShardAudits, AfterADifferenceBetweenTwoKeepersAllRestoreACheckpoint) {
  for (const char* what : {"parameter", "optimizer"})
    for (const int workers : {2, 3}) {
      const std::string name = fmt::format("{}{}", what, workers);
      const Ended ended = audit(name, workers, 2, fmt::format("flip:worker=2,step=59,bit=27,what={}", what));
      EXPECT_EQ(ended.code, 0) << name << ended.err;
      EXPECT_EQ(ledger(name), undisturbed());
      EXPECT_EQ(digests(name), digests("whole"));
      EXPECT_EQ(guilty(name), std::vector<int>());
      const std::vector<Json> restored = events(name, "restored");
      ASSERT_EQ(restored.size(), 1u) << name;
      EXPECT_EQ(restored[0].at("restored"), 40);
      EXPECT_NE(restored[0].at("reason").get<std::string>().find("the state before update 6"), std::string::npos);
    }
}

// When the second one is found depends on who has which virtual ranks, and so on measured speeds. An update that was
// made before is on file, so a resumed run may find that it differs.
TEST_F(ShardAudits, ADifferenceThatComesAgainBeforeTheNextCheckpointEndsTheRun) {
  const std::string flip = "flip:worker=2,step={},bit=27,what=parameter";
  const Ended ended = audit("run", 3, 2, fmt::format(fmt::runtime(flip + ";" + flip), /*first=*/59, /*second=*/62));
  EXPECT_EQ(ended.code, 3) << ended.err;
  EXPECT_NE(ended.err.find("the state before update"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("found a fault and cannot go on without workers"), std::string::npos) << ended.err;
  EXPECT_EQ(count("run", "state_lost"), 1u);
  EXPECT_EQ(guilty("run"), std::vector<int>());
  EXPECT_EQ(newest_checkpoint("run"), 40);
}

// Nothing is compared with the optimizer's state that one worker alone keeps: its damage is in all later updates of all
// workers alike, and only a repetition of the run shows it (repro verify).
TEST_F(ShardAudits, AnOptimizersStateWithoutACopyIsNotAudited) {
  const Ended ended = audit("run", 3, 1, "flip:worker=2,step=59,bit=27,what=optimizer");
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(guilty("run"), std::vector<int>());
  EXPECT_EQ(count("run", "flip"), 1u);
  const std::vector<std::string> right = test::lines_of(undisturbed()), found = test::lines_of(ledger("run"));
  for (size_t line = 0; line <= 59; ++line) EXPECT_EQ(found[line], right[line]);
  EXPECT_NE(found.back(), right.back());
}

}  // namespace
}  // namespace elinvar
