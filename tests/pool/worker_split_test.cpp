// Worker splits: how the slots of a job become workers, and that a pool finds the faster split.
#include "tools/pool/policies/worker_split.h"

#include <gtest/gtest.h>

#include "tensor/base/check.h"
#include "tests/pool/scene.h"
#include "tools/pool/profiling/trials.h"
#include "tools/pool/sim/simulate.h"

namespace elinvar::pool {
namespace {

constexpr int kRanks = 8;
constexpr double kBatch = 64;

// Returns the samples/s of n workers of `width` slots. Each worker adds `exchange` to a step; each thread beyond the
// first adds `share` of a thread's speed.
double truth(int n, int width, double exchange, double share) {
  const double share_of_ranks = (kRanks + n - 1) / n / static_cast<double>(kRanks);
  return kBatch / (share_of_ranks / (1 + share * (width - 1)) + exchange * (n - 1));
}

Measurement measured(int n, int width, double rate, double seconds = 20) {
  return {.workers = {{"cpu-1", n}}, .shape = {.width = width}, .seconds = seconds, .rate = rate};
}

// Four slots on one host, and a job that has them in the given width.
struct One {
  Pool pool;
  One(int width, std::vector<Measurement> seen, bool runs = true) {
    for (Id id = 1; id <= 4; ++id) pool.slots.push_back({.id = id, .kind = "cpu-1", .host = "a"});
    Job job;
    job.id = 1;
    job.max_workers = kRanks;
    job.virtual_ranks = kRanks;
    job.total = 1e6;
    job.shapes = {{.width = 1}, {.width = 2}, {.width = 4}};
    job.measured = std::move(seen);
    job.speed = std::make_shared<FittedSpeed>(kRanks, kBatch, job.measured);
    if (runs) job.slots = {1, 2, 3, 4};
    if (runs) job.shape = {.width = width};
    pool.jobs.push_back(std::move(job));
  }
  Job& job() { return pool.jobs[0]; }
  Decision decided(int width, bool trials = true) const {
    const Plan plan = with_worker_split(pool, {{{1, {1, 2, 3, 4}, {.width = width}, "all"}}, "", 0}, trials);
    EXPECT_TRUE(violations(pool, plan).empty());
    return plan.decisions[0];
  }
};

TEST(PoolWorkerSplit, IsHostByHostAndKeepsWorkers) {
  Pool pool;
  for (Id id = 1; id <= 6; ++id) pool.slots.push_back({.id = id, .kind = "cpu-1", .host = id <= 4 ? "a" : "b"});
  Job job;
  job.max_workers = 8;
  EXPECT_EQ(split_slots(pool, job, {6, 3, 1, 5, 2, 4}, 2), (std::vector<Id>{1, 2, 3, 4, 5, 6}));
  EXPECT_TRUE(split_slots(pool, job, {1, 2, 3, 5}, 2).empty()) << "three of a, one of b";
  EXPECT_TRUE(split_slots(pool, job, {1, 2, 3, 4, 5, 6}, 4).empty());
  job.slots = {2, 3, 5, 6};
  job.shape = {.width = 2};
  EXPECT_EQ(split_slots(pool, job, {1, 2, 3, 4, 5, 6}, 2), (std::vector<Id>{2, 3, 5, 6, 1, 4}));
  job.min_workers = 4;
  EXPECT_TRUE(split_slots(pool, job, {1, 2, 3, 4}, 2).empty()) << "two workers are too few";
  for (Slot& slot : pool.slots) slot.combinable = slot.host == "b";
  job.min_workers = 1;
  EXPECT_TRUE(split_slots(pool, job, {1, 2, 3, 4}, 2).empty()) << "they cannot be combined";
  job.max_workers = 3;
  EXPECT_TRUE(split_slots(pool, job, {1, 2, 3, 4}, 1).empty()) << "four are too many";
}

TEST(PoolWorkerSplit, AStartIsAsTheOneBeforeWasFastest) {
  const One fresh(1, {}, /*runs=*/false);
  EXPECT_EQ(fresh.decided(1).shape.width, 1) << "nothing is known";
  const One wide(1, {measured(4, 1, 100), measured(2, 2, 130)}, /*runs=*/false);
  const Decision decision = wide.decided(1);
  EXPECT_EQ(decision.shape.width, 2);
  EXPECT_FALSE(decision.trial);
  EXPECT_NE(decision.reason.find("2 workers of 2 slots"), std::string::npos) << decision.reason;
  const One narrow(1, {measured(4, 1, 130), measured(2, 2, 100)}, /*runs=*/false);
  EXPECT_EQ(narrow.decided(1).shape.width, 1);
}

TEST(PoolWorkerSplit, WhatMightPayIsTriedAndKeptOnlyIfItDoes) {
  One one(1, {measured(4, 1, truth(4, 1, 0.1, 0))});
  const Decision trial = one.decided(1);
  EXPECT_EQ(trial.shape.width, 2);
  EXPECT_TRUE(trial.trial);
  EXPECT_EQ(trial.slots.size(), 4u);
  EXPECT_EQ(one.decided(1, /*trials=*/false).shape.width, 1);
  one.job().total = 3000;
  EXPECT_EQ(one.decided(1).shape.width, 1) << "the job is too short for it";
  one = One(1, {});
  EXPECT_EQ(one.decided(1).shape.width, 1) << "first of all what it has is measured";
  for (const double better : {1.2, 0.7}) {
    const One after(2, {measured(4, 1, 200), measured(2, 2, 200 * better)});
    EXPECT_EQ(after.decided(2, /*trials=*/false).shape.width, better > 1 ? 2 : 1);
  }
  const One close(2, {measured(4, 1, 202), measured(2, 2, 200)});
  EXPECT_EQ(close.decided(2, /*trials=*/false).shape.width, 2) << "one per cent may be noise";
  const One naive(2, {measured(4, 1, 200), measured(2, 2, 240)});
  EXPECT_EQ(naive.decided(1, /*trials=*/false).shape.width, 2) << "a policy that gives single slots changes nothing";
}

// Jobs whose threads are nearly as good as workers, and jobs whose threads add nothing.
TEST(PoolWorkerSplit, TheBetterOneIsFoundInSimulatedTime) {
  for (const double share : {0.95, 0.0}) {
    std::string rates;
    for (const int width : {1, 2, 4})
      for (const int n : {1, 2, 4})
        rates += fmt::format("{}{{\"kind\": \"cpu-1\", \"workers\": {}, \"width\": {}, \"rate\": {}}}",
                             rates.empty() ? "" : ", ", n, width, truth(n, width, 0.1, share));
    const std::string costs =
        R"({"start": 5, "join": 2, "join_stall": 0.2, "leave": 1, "leave_stall": 0.1, "death_stall": 1, "stop": 2,
            "checkpoint_every": 60})";
    const Table table = parse_table(fmt::format(R"({{"models": {{"net": {{"provenance": "a test", "virtual_ranks": {},
                                                    "batch": {}, "costs": {}, "rates": [{}]}}}}}})",
                                                kRanks, kBatch, costs, rates),
                                    "a test");
    Trace trace;
    trace.hosts.push_back({.host = "a", .kind = "cpu-1", .slots = 4});
    trace.jobs.push_back({.model = "net", .fixed = 4, .min = 1, .max = 8, .samples = 4e5, .kinds = {}});
    const Outcome learned =
        simulate(trace, table, &equal, {.models = Belief::kLearned, .period = 10, .keep_log = true});
    const std::string story = fmt::format("{}", fmt::join(learned.log, "\n"));
    const double plain = 5 + 2 + 4e5 / truth(4, 1, 0.1, share), best = 5 + 2 + 4e5 / truth(1, 4, 0.1, share);
    if (share > 0) {
      EXPECT_LT(learned.jobs[0].ended, plain - 0.5 * (plain - best)) << story;
    } else {
      EXPECT_LT(learned.jobs[0].ended, plain * (1 + 2 * kTrialBudget)) << story;
      EXPECT_LE(learned.changes, 12) << story;
    }
  }
}

class PoolWorkerSplits : public testing::Test, protected test::Scene {
 protected:
  PoolWorkerSplits() : Scene(1) {
    learns_ = true;
    policy_ = [](const Pool& pool) { return with_worker_split(pool, equal(pool), /*trials=*/true); };
  }
};

TEST_F(PoolWorkerSplits, AJobGoesOverToTheBetterOneAndNobodyTakesItsSlots) {
  world_.tax = 0.5;
  machines({machine("a", 2)});
  const Id id = submit(6000, 1, 4);
  ticks(30);
  const Id other = submit(100, 2, 2);  // would take the whole machine if that were ever free
  ticks(120);
  EXPECT_EQ(job(id).shape.width, 2) << story();
  EXPECT_EQ(world_.running(id).size(), 1u) << "one worker with both slots\n" << story();
  EXPECT_EQ(world_.starts(id), 2) << story();
  EXPECT_EQ(world_.starts(other), 0) << story();
  EXPECT_NE(story().find("tries 1 worker of 2 slots"), std::string::npos) << story();
  ticks(4000);
  EXPECT_EQ(job(id).state, JobRecord::State::finished) << story();
  EXPECT_EQ(job(other).state, JobRecord::State::finished) << story();
}

TEST_F(PoolWorkerSplits, AGpuIsOneWorkers) {
  world_.tax = 0.5;
  Machine gpus = machine("a", 2, "H200");
  gpus.device = "cuda";
  machines({gpus});
  const Id id = submit(6000, 1, 4);
  ticks(150);
  EXPECT_EQ(job(id).shape.width, 1) << story();
  EXPECT_EQ(world_.starts(id), 1) << story();
}

}  // namespace
}  // namespace elinvar::pool
