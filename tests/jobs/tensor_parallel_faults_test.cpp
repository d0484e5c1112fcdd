// Faults in jobs whose workers compute each rank gradient together (tensor and pipeline parallelism): whoever dies or
// stalls, also in the middle of a rank gradient, the run ends as that of one undisturbed worker, and an audit blames
// nobody for what several workers have computed.
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <thread>

#include "elastic/audit/audit.h"
#include "elastic/session/chaos.h"
#include "tensor/base/file.h"
#include "tests/jobs/division_faults.h"
#include "tests/support/environment.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::Division;
using test::DivisionFaults;
using test::Ended;
using test::every_fault;
using test::kTinyAdamW;
using test::kTinyLamb;
using Words = std::vector<std::string>;

TEST_F(DivisionFaults, WhoDiesIsReplacedByTheOthersAndByNewcomers) {
  const std::string chaos = "kill:worker=2,step=30;join:step=50;kill:worker=1,step=80;join:step=100";
  for (const Division& division : {Division{.dp = 2},
                                   {.tp = 1, .pp = 3},
                                   {.tp = 3, .zero = 1},
                                   {.dp = 2, .zero = 2},
                                   {.tp = 2, .pp = 2, .zero = 1},
                                   {.dp = 2, .tp = 1, .pp = 2, .zero = 2}}) {
    EXPECT_EQ(run_through(division.name(), options(division, chaos)), "") << division.name();
    EXPECT_EQ(count(division.name(), "kill"), 2u);
    EXPECT_EQ(count(division.name(), "state_lost"), 0u);
    if (!every_fault() && division.pp > 1) break;
  }
}

// The last worker goes on alone, with all shards and segments, until others join it.
TEST_F(DivisionFaults, ReplicasShrinkToOneWorkerAndGrowAgain) {
  for (const Division& division : {Division{.tp = 3}, {.tp = 1, .pp = 3}}) {
    const std::string name = division.name();
    EXPECT_EQ(run_through(name, options(division,
                                        "kill:worker=3,step=20;kill:worker=1,step=40;join:step=60;"
                                        "join:step=80;join:step=81;kill:worker=2,step=120")),
              "");
    EXPECT_EQ(count(name, "kill"), 3u);
    std::set<size_t> sizes;
    for (const Json& generation : events(name, "members")) sizes.insert(generation.at("members").size());
    EXPECT_TRUE(sizes.contains(1) && sizes.contains(2) && sizes.contains(3));
  }
}

struct DividedState {
  const char* name;
  const char* optimizer;
  int zero, copies;
};
class DividedKillPoints : public DivisionFaults, public ::testing::WithParamInterface<DividedState> {
 protected:
  DividedKillPoints() : DivisionFaults(GetParam().optimizer) {}
};
INSTANTIATE_TEST_SUITE_P(
    , DividedKillPoints,
    ::testing::Values(DividedState{"whole", kTinyAdamW, 0, 1}, DividedState{"zero1", kTinyLamb, 1, 1},
                      DividedState{"zero1_copies", kTinyAdamW, 1, 2}, DividedState{"zero2", kTinyAdamW, 2, 1},
                      DividedState{"zero2_copies", kTinyLamb, 2, 2}, DividedState{"zero3", kTinyLamb, 3, 1},
                      DividedState{"zero3_copies", kTinyLamb, 3, 2}),
    [](const auto& param) { return param.param.name; });

// The leader and another worker, in two replicas of two and in one of three or four, of members and of stages.
TEST_P(DividedKillPoints, AtEachOfThemTheOthersGoOn) {
  const auto& [kind, optimizer, zero, copies] = GetParam();
  int number = 11 * (zero + copies);
  std::map<std::string, size_t> deaths;  // by the point
  for (const auto& [dp, tp, pp] : {std::array{2, 2, 1}, {1, 3, 1}, {1, 1, 3}, {1, 2, 2}, {2, 1, 2}}) {
    const Division division{.dp = dp, .tp = tp, .pp = pp, .zero = zero, .copies = copies};
    for (int point = 0; point <= static_cast<int>(Fault::Point::fetch); ++point) {
      const std::string at = name_of(static_cast<Fault::Point>(point));
      for (const int victim : {0, 2}) {
        if (!every_fault() && ++number % 40 != 0) continue;
        const std::string name = fmt::format("{}-{}-{}", division.name(), at, victim);
        SCOPED_TRACE(name);
        const std::string chaos = fmt::format("kill:worker={},step=60,at={};join:step=90", victim, at);
        expect_undisturbed(name, wait(start(name, options(division, chaos)), name, std::chrono::seconds(60)));
        const std::vector<Json> dead = events(name, "at");
        // Only the first member sends no part of the trailer, and with whole states nobody sends parameters.
        const bool comes_there = (at != "part" || victim == 2) && (at != "value" || zero == 1 || zero == 2) &&
                                 (at != "fetch" || zero == 3) && (at != "within" || tp > 1) &&
                                 (at != "boundary" || pp > 1);
        // Who contributes buckets and adds them up depends on the buckets, and a stage need not have parameters, or
        // virtual shards to add up.
        const bool may = at == "contribute" || at == "sum" || (pp > 1 && at == "within");
        deaths[at] += dead.size();
        EXPECT_LE(dead.size(), 1u);
        if (!may) {
          EXPECT_EQ(dead.size(), comes_there ? 1u : 0u);
        }
        if (!dead.empty()) {
          EXPECT_EQ(dead[0].at("at"), at);
          EXPECT_EQ(dead[0].at("step"), 60);
        }
        EXPECT_EQ(count(name, "state_lost"), zero > 0 && copies == 1 ? dead.size() : 0u);
        if (HasFailure()) return;
      }
    }
  }
  for (const char* at : {"within", "boundary", "contribute", "sum"})
    if (every_fault()) {
      EXPECT_GT(deaths[at], 0u) << at;
    }
}

// Two of one replica, or of two; with one copy of each part of the state, the run restores a checkpoint.
TEST_F(DivisionFaults, TwoThatDieInOneStepAreSurvivedByTheOthers) {
  int number = 0;
  for (const auto& [dp, tp, pp] : {std::array{2, 2, 1}, {1, 3, 1}, {1, 1, 3}, {2, 1, 2}, {1, 2, 2}})
    for (const auto& [zero, copies] : {std::pair{0, 1}, {1, 1}, {1, 2}, {2, 1}, {2, 2}})
      for (const std::string at : {pp > 1 ? "boundary" : "within", "contribute", "update"})
        for (const std::string other : {"forward", pp > 1 ? "boundary" : "within", "part", "trailer"}) {
          if (!every_fault() && ++number % 85 != 0) continue;
          const Division division{.dp = dp, .tp = tp, .pp = pp, .zero = zero, .copies = copies};
          const std::string name = fmt::format("{}-{}-{}", division.name(), at, other);
          SCOPED_TRACE(name);
          const std::string chaos = fmt::format("kill:worker=2,step=60,at={};kill:worker=3,step=60,at={}", at, other);
          EXPECT_EQ(run_through(name, options(division, chaos)), "");
          EXPECT_GE(count(name, "kill"), at == "contribute" ? 1u : 2u);  // not every member contributes to others
          if (HasFailure()) return;
        }
}

// The stall leaves the first drain the time to take place.
TEST_F(DivisionFaults, LeavingAndJoiningLosesNothing) {
  const std::string chaos =
      "drain:worker=2,step=15;join:step=30;stall:worker=0,step=45,seconds=0.3;drain:worker=1,step=60";
  for (const Division& division : {Division{.dp = 2, .tp = 1, .pp = 2},
                                   {.dp = 2},
                                   {.tp = 3, .zero = 1, .copies = 1},
                                   {.dp = 2, .zero = 2},
                                   {.tp = 2, .pp = 2, .zero = 1, .copies = 1},
                                   {.tp = 1, .pp = 3, .zero = 2}}) {
    const std::string name = division.name();
    EXPECT_EQ(run_through(name, options(division, chaos)), "");
    EXPECT_GE(count(name, "left"), 1u);  // the run may end before the second
    EXPECT_EQ(count(name, "state_lost"), 0u);
    if (!every_fault()) break;
  }
}

TEST_F(DivisionFaults, StallsMessagesThatAreLostAndAllDeathsAreOvercome) {
  const std::string stalls =
      "stall:worker=2,step=30,seconds=0.2;stall:worker=0,step=60,seconds=0.2;drop:worker=2,step=80";
  for (const Division& division : {Division{.tp = 1, .pp = 3, .zero = 2, .copies = 1},
                                   {.tp = 3, .zero = 2, .copies = 1},
                                   {.dp = 2},
                                   {.tp = 3, .zero = 1},
                                   {.dp = 2, .tp = 1, .pp = 2, .zero = 1},
                                   {.tp = 2, .pp = 2}}) {
    const std::string name = division.name();
    EXPECT_EQ(run_through("stalls-" + name, options(division, stalls)), "") << name;
    EXPECT_EQ(run_through("all-" + name, options(division, "kill:all,step=70;kill:coordinator,step=100")), "") << name;
    if (!every_fault()) break;
    EXPECT_EQ(run_through("leader-" + name, options(division, "drop:worker=0,step=80")), "") << name;
    // A stall that is longer than the limit of silence.
    EXPECT_EQ(run_through("long-" + name, options(division, "stall:worker=2,step=30,seconds=4")), "") << name;
  }
}

// Whoever takes over knows the arrangement: after that, workers still compute together.
TEST_F(DivisionFaults, AWorkerTakesOverFromTheKilledCoordinator) {
  for (const Division& division : {Division{.tp = 2, .pp = 2},
                                   {.tp = 3},
                                   {.dp = 2, .zero = 1, .copies = 1},
                                   {.tp = 3, .zero = 2},
                                   {.dp = 2, .tp = 1, .pp = 2, .zero = 2}}) {
    const std::string name = division.name();
    const pid_t job = start(name, options(division, "kill:coordinator,step=20", {"--steps", "100000000"}));
    EXPECT_EQ(wait(job, name).code, 128 + SIGKILL);
    Json now = Json::object();
    for (int i = 0; i < 600 && now.value("workers", Json::array()).size() < size_t(division.workers()); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      now = status(name);
    }
    EXPECT_EQ(now.value("arrangement", Json::object()).value("tp", 1), division.tp);
    EXPECT_EQ(now.value("arrangement", Json::object()).value("pp", 1), division.pp);
    int shards = 0, segments = 0;
    for (const Json& worker : now.value("workers", Json::array())) {
      const Json own = worker.value("virtual_shards", Json{0, 0});
      shards += own.at(1).get<int>() - own.at(0).get<int>();
      for (const Json& run : worker.value("segments", Json::array()))
        segments += run.at(1).get<int>() - run.at(0).get<int>();
    }
    EXPECT_EQ(shards, 3 * division.dp * division.pp);
    EXPECT_EQ(segments, division.pp > 1 ? 8 * division.dp * division.tp : 0);
    reach(name, kSteps);
    EXPECT_EQ(wait(spawn({"ctl", folder_ / name, "stop"}, "ctl"), "ctl").code, 0);
    EXPECT_EQ(remaining_children(std::chrono::seconds(30)), "");
    const Words right = test::lines_of(undisturbed()), found = test::lines_of(ledger(name));
    for (size_t line = 1; line + 1 < right.size(); ++line) EXPECT_EQ(found.at(line), right[line]);
    if (!every_fault()) break;
  }
}

#ifdef ELINVAR_EMULATION
TEST_F(DivisionFaults, AGpuThatDiesLeavesItsShardsToCpus) {
  const pid_t job = start("both", {"--arrangement", "tp=2", "--workers", "1", "--min-workers", "2", "--chaos",
                                   "kill:worker=2,step=20,at=within;join:step=20;kill:worker=1,step=60,at=within"});
  for (int i = 0; i < 2000 && !fs::exists(folder_ / "both" / "coordinator.json"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const auto join = [&](const std::string& name) {
    return spawn({"join", endpoint("both"), "--device", "emulated", "--threads", "1"}, name);
  };
  const pid_t first = join("first");
  reach("both", 25);
  const pid_t second = join("second");
  const Ended ended = wait(job, "both");
  EXPECT_EQ(wait(first, "first").code, 128 + SIGKILL);
  EXPECT_EQ(wait(second, "second").code, 0);
  expect_undisturbed("both", ended);
  EXPECT_EQ(events("both", "at").size(), 2u);
}
#endif

// ELINVAR_CHAOS and ELINVAR_CHAOS_SEED as in chaos_test.cpp.
TEST_F(DivisionFaults, RandomSchedulesEndAsTheUndisturbedRun) {
  const int64_t runs = test::from_environment("ELINVAR_CHAOS", every_fault() ? 60 : 2),
                first = test::from_environment("ELINVAR_CHAOS_SEED", 0);
  for (int64_t seed = first; seed < first + runs; ++seed) {
    const int pp = 1 + static_cast<int>(seed / 4 % 3), tp = (pp == 1 ? 2 : 1) + static_cast<int>((seed + 1) % 2);
    const Division division{.dp = tp * pp > 3 ? 1 : 1 + static_cast<int>(seed / 2 % 2),
                            .tp = tp,
                            .pp = pp,
                            .zero = static_cast<int>(seed % 3),
                            .copies = 1 + static_cast<int>(seed / 3 % 2)};
    if (!endures_random_faults(seed, division, tp > 1 ? "within" : "boundary")) return;
  }
}

// Every update is audited.
class DivisionAudits : public DivisionFaults {
 protected:
  // Returns the first update from `from` on whose audited rank gradient is that of `vrank` and has samples.
  static int64_t update_with(int vrank, int64_t from) {
    while (audited_vrank(kAudits, from - 1, 3) != vrank || from % 8 == 0) ++from;
    return from;
  }
  Ended audit(const std::string& name, const Division& division, const std::string& chaos) const {
    return wait(start(name, options(division, chaos, {"--set", "run.audit_every=1"})), name, std::chrono::seconds(60));
  }
  Words verdicts(const std::string& name) const {
    Words all;
    for (const Json& found : events(name, "verdict")) {
      all.push_back(found.at("verdict"));
      if (all.back() == "guilty") all.back() += found.at("workers").dump();
    }
    return all;
  }
  static constexpr AuditOptions kAudits{.every = 1, .seed = 5};  // the tiny job's seed
};

// The rank gradient is one of several workers together, and none of them is to blame: alone, all come to the same.
// Bits of tensors that all have, and of which the first or the second worker contributes the gradient if each is in a
// bucket of its own, and of one that is cut.
TEST_F(DivisionAudits, AWrongGradientOfSeveralIsMadeAgainAndNobodyIsEvicted) {
  int number = 0;
  for (const Division& division : {Division{},
                                   {.tp = 3},
                                   {.tp = 1, .pp = 3},
                                   {.tp = 2, .zero = 1, .copies = 1},
                                   {.tp = 1, .pp = 2, .zero = 2},
                                   {.tp = 3, .zero = 2},
                                   {.tp = 2, .pp = 2, .zero = 1}})
    for (const char* what : {"leaf", "input"})
      for (const int bit : {27, 3461, 4500})
        for (int worker = 1; worker <= division.workers(); ++worker) {
          if (!every_fault() && ++number % 30 != 0) continue;
          const std::string name = fmt::format("{}-{}-{}-{}", division.name(), what, bit, worker);
          SCOPED_TRACE(name);
          const int64_t update = update_with(0, 30 + worker);
          const std::string flip = fmt::format("flip:worker={},step={},bit={},what={}", worker, update, bit, what);
          expect_undisturbed(name, audit(name, division, flip));
          // A stage without parameters has no gradients.
          const bool may = division.pp > 1 && std::string_view(what) == "leaf" && count(name, "flip") == 0;
          EXPECT_EQ(verdicts(name), may ? Words{} : (Words{"all compute it again", "agreed"}));
          if (!may) {
            EXPECT_EQ(count(name, "flip"), 1u);
          }
          if (HasFailure()) return;
        }
}

// In the trial all compute alone, and the majority is right.
TEST_F(DivisionAudits, WhoIsWrongAloneIsFound) {
  const int64_t update = update_with(0, 40);
  for (const Division& division : {Division{.tp = 3},
                                   {.tp = 1, .pp = 3, .zero = 1},
                                   {.tp = 3, .zero = 1},
                                   {.tp = 3, .zero = 2},
                                   {.tp = 2, .pp = 2},
                                   {.tp = 1, .pp = 3, .zero = 2}}) {
    // Each stage has the input, but not always gradients.
    const char* const what = division.pp > 1 ? "input" : "leaf";
    std::string flips;
    for (int i = 0; i < 150; ++i)
      flips += fmt::format("{}flip:worker=2,step={},bit=27,what={}", i > 0 ? ";" : "", update, what);
    expect_undisturbed(division.name(), audit(division.name(), division, flips));
    EXPECT_EQ(verdicts(division.name()), (Words{"all compute it again", "guilty[2]"}));
    if (!every_fault() && division.pp > 1) break;
  }
}

// States differ and are compared first, although the damaged one is in what its worker computes with others. Two
// workers have no majority: each replays alone, from a checkpoint that both have made.
TEST_F(DivisionAudits, AWrongStateIsFoundAndItsWorkerEvicted) {
  const Division two{}, three{.tp = 3}, stages{.tp = 1, .pp = 2}, four{.tp = 2, .pp = 2};
  for (const auto& [division, what] : {std::pair{two, "parameter"},
                                       {three, "parameter"},
                                       {two, "optimizer"},
                                       {three, "optimizer"},
                                       {stages, "parameter"},
                                       {four, "optimizer"},
                                       {four, "parameter"}})
    for (int worker = 1; worker <= division.workers(); ++worker) {
      if (!every_fault() && worker != (std::string_view(what) == "parameter" ? 2 : division.workers() - 2)) continue;
      const std::string name = fmt::format("{}-{}-{}", division.name(), what, worker);
      SCOPED_TRACE(name);
      const std::string flip = fmt::format("flip:worker={},step=59,bit=20,what={}", worker, what);
      expect_undisturbed(name, audit(name, division, flip));
      const std::string guilty = fmt::format("guilty[{}]", worker);
      EXPECT_EQ(verdicts(name), division.workers() > 2 ? (Words{"all compute it again", guilty})
                                                       : (Words{"all compute it again", "replay", guilty}));
      if (HasFailure()) return;
    }
}

// Without ZeRO there are buckets of the convolution and of the batch norm, of each of three shards of both linear
// layers, and of batch statistics. Members add up those of what is not cut in turn: the first two, and the last one. So
// the first of two members, which has two shards, makes six sums, and the other members make three. All of them are
// wrong once: if some were wrong in the trial again, two members would have no majority.
TEST_F(DivisionAudits, AWrongSumIsFoundAndItsWorkerEvicted) {
  for (const int tp : {2, 3})
    for (int worker = 1; worker <= tp; ++worker) {
      if (!every_fault() && worker + 1 != tp) continue;
      const std::string name = fmt::format("{}-{}", tp, worker);
      SCOPED_TRACE(name);
      int64_t update = 42;
      constexpr int kBuckets = 9;
      while (audited_bucket(kAudits, update - 1, kBuckets) != (worker == 3 ? kBuckets - 1 : worker - 1)) ++update;
      const int sums = tp == 2 && worker == 1 ? 6 : 3;
      std::string flips;
      for (int i = 0; i < sums; ++i)
        flips += fmt::format("{}flip:worker={},step={},bit=27,what=reduced", i > 0 ? ";" : "", worker, update);
      expect_undisturbed(name, audit(name, {.tp = tp}, flips));
      EXPECT_EQ(verdicts(name), (Words{"all compute it again", fmt::format("guilty[{}]", worker)}));
      if (HasFailure()) return;
    }
}

// One flip in any worker: what the audit compares is found, and only who has damaged something alone is evicted.
TEST_F(DivisionAudits, RandomFlipsAreFoundWhereTheyAreAudited) {
  const int64_t runs = test::from_environment("ELINVAR_AUDITS", every_fault() ? 60 : 6),
                first = test::from_environment("ELINVAR_CHAOS_SEED", 0);
  int64_t hits = 0;
  for (int64_t seed = first; seed < first + runs; ++seed) {
    const int pp = 1 + static_cast<int>(seed / 4 % 3), tp = (pp == 1 ? 2 : 1) + static_cast<int>(seed / 2 % 2);
    const Division division{.dp = tp * pp > 3 ? 1 : 1 + static_cast<int>(seed % 2),
                            .tp = tp,
                            .pp = pp,
                            .zero = static_cast<int>(seed % 3),
                            .copies = 1 + static_cast<int>(seed / 3 % 2)};
    const int64_t bits = seed * 2654435761 >> 3 & 0xffffff;
    const int worker = 1 + static_cast<int>(bits % division.workers());
    const int64_t update = update_with(bits / 8 % 4 == 0 ? 2 : 0, 5 + bits / 32 % 120);
    const char* const what = seed % 3 == 0 ? "input" : "leaf";
    const std::string name = fmt::format("seed{}", seed);
    const std::string flip = fmt::format("flip:worker={},step={},bit={},what={}", worker, update, bits, what);
    SCOPED_TRACE(fmt::format("seed {}, {}, {}", seed, division.name(), flip));
    const Ended ended = audit(name, division, flip);
    // A loss that is not a number ends the run, so the flip need not be found.
    const bool diverged = ended.err.find("the loss is not a number") != std::string::npos;
    EXPECT_EQ(ended.code, diverged ? 3 : 0) << ended.err;
    int64_t right = kSteps;
    for (const Json& flipped : events(name, "bit")) {
      const bool hit = flipped.at("vrank") == audited_vrank(kAudits, update - 1, 3);
      EXPECT_EQ(verdicts(name), hit ? (Words{"all compute it again", "agreed"}) : Words{});
      hits += hit;
      if (!hit) right = update - 1;
    }
    const Words clean = test::lines_of(undisturbed()), mine = test::lines_of(ledger(name));
    ASSERT_TRUE(diverged ? right < kSteps && mine.size() > static_cast<size_t>(right) : clean.size() == mine.size());
    for (size_t line = 0; line <= static_cast<size_t>(right); ++line) EXPECT_EQ(clean[line], mine[line]);
    if (HasFailure()) return;
    fs::remove_all(folder_ / name);
  }
  EXPECT_GT(hits, runs / 5);
}

}  // namespace
}  // namespace elinvar
