// Results that a pool learns from jobs that ran: costs and speeds for the simulator, and warm starts.
#include <gtest/gtest.h>

#include "tensor/base/check.h"
#include "tests/support/temporary_folder.h"
#include "tools/pool/profiling/job_models.h"
#include "tools/pool/profiling/rescale_costs.h"
#include "tools/pool/sim/check.h"
#include "tools/pool/sim/measure.h"

namespace elinvar::pool {
namespace {

using elinvar::test::message_of;
using elinvar::test::TemporaryFolder;

// Adds `count` steps of a generation, each taking `seconds`; the first one takes `stall` longer.
void run(std::vector<StepRecord>& steps, int count, int workers, double seconds, double stall = 0, double from = 0) {
  const int64_t generation = steps.empty() ? 1 : steps.back().generation + 1;
  double now = from > 0 || steps.empty() ? from : steps.back().time;
  for (int i = 0; i < count; ++i) steps.push_back({now += seconds + (i == 0 ? stall : 0), workers, generation});
}

TEST(Observed, SpeedsAreThoseOfUndisturbedSteps) {
  std::vector<StepRecord> steps;
  run(steps, 20, 1, 0.1, 5);
  run(steps, 20, 2, 0.06, 1);
  run(steps, 20, 1, 0.1, 0.5);
  const std::map<int, double> seconds = step_seconds(steps);
  ASSERT_EQ(seconds.size(), 2u);
  // Times are sums of steps, so these and the costs below have rounding errors only.
  EXPECT_NEAR(seconds.at(1), 0.1, 1e-9);
  EXPECT_NEAR(seconds.at(2), 0.06, 1e-9);
}

TEST(Observed, CostsAreWhatChangesTookAndHeldUp) {
  std::vector<StepRecord> steps;
  std::vector<RescaleEvent> changes{{RescaleEvent::kStart, 97.0}};
  run(steps, 20, 1, 0.1, 0, 100);  // the first step is done at 100.1: the start took 3 s
  changes.push_back({RescaleEvent::kJoin, steps.back().time - 1.5});
  run(steps, 20, 2, 0.06, 0.2);
  const double before_leave = steps.back().time;
  changes.push_back({RescaleEvent::kLeave, before_leave - 0.01, before_leave + 0.7});
  run(steps, 20, 1, 0.1, 0.05);
  run(steps, 20, 2, 0.06, 0.2);
  changes.push_back({RescaleEvent::kDeath, steps.back().time + 0.01});
  run(steps, 20, 1, 0.1, 0.9);
  changes.push_back({RescaleEvent::kStop, steps.back().time, steps.back().time + 2.5});
  const RescaleCosts costs = measured_costs(steps, step_seconds(steps), changes);
  EXPECT_NEAR(costs.start, 3, 1e-6);
  EXPECT_NEAR(costs.join, 1.7, 1e-6) << "from the decision to the newcomer's first step";
  EXPECT_NEAR(costs.join_stall, 0.2, 1e-6);
  EXPECT_NEAR(costs.leave, 0.71, 1e-6);
  EXPECT_NEAR(costs.leave_stall, 0.05, 1e-6);
  EXPECT_NEAR(costs.death_stall, 0.9, 1e-6);
  EXPECT_NEAR(costs.stop, 2.5, 1e-6);
}

// The events of a job's processes: one starts with the job, one joins and leaves, one dies, and a stop.
TEST(Observed, ChangesAreThoseOfProcesses) {
  const auto process = [](Id id, double started, double leaving, double ended, int code) {
    return ProcessRecord{
        .id = id, .job = 1, .started = started, .leaving = leaving, .ended = ended, .registered = true, .code = code};
  };
  std::vector<ProcessRecord> processes{process(1, 97, 0, 0, 0),      process(2, 98, 200, 202.5, 0),
                                       process(3, 110, 130, 131, 0), process(4, 140, 0, 161, 137),
                                       process(5, 170, 200, 201, 0), process(6, 180, 0, 181, 3)};
  processes[0].coordinator = true;
  processes[0].leaving = 200, processes[0].ended = 202;
  processes[5].registered = false;
  std::map<RescaleEvent::What, std::vector<RescaleEvent>> seen;
  for (const RescaleEvent& change : rescale_events(processes)) seen[change.what].push_back(change);
  ASSERT_EQ(seen[RescaleEvent::kStart].size(), 1u);
  ASSERT_EQ(seen[RescaleEvent::kLeave].size(), 1u) << "at a stop nobody leaves";
  EXPECT_EQ(seen[RescaleEvent::kLeave][0].free, 131);
  ASSERT_EQ(seen[RescaleEvent::kStop].size(), 1u);
  EXPECT_EQ(seen[RescaleEvent::kStop][0].at, 200);
  EXPECT_EQ(seen[RescaleEvent::kStop][0].free, 202.5) << "when the last one was gone";
  ASSERT_EQ(seen[RescaleEvent::kDeath].size(), 1u) << "who has never lived does not die";
  EXPECT_EQ(seen[RescaleEvent::kJoin].size(), 4u);
  std::vector<StepRecord> steps;
  run(steps, 100, 1, 0.1, 0, 100);
  EXPECT_EQ(measured_costs(steps, step_seconds(steps),
                           std::vector<RescaleEvent>{{RescaleEvent::kStart, 97}, {RescaleEvent::kJoin, 98}})
                .join,
            0)
      << "who comes before the first step belongs to the start";
}

TEST(Observed, NothingIsFreeAndWhatWasNotSeenIsAsUsual) {
  std::vector<StepRecord> steps;
  run(steps, 20, 2, 0.1);
  const double left = steps.back().time;
  run(steps, 20, 1, 0.1);
  const RescaleCosts seen =
      measured_costs(steps, step_seconds(steps), std::vector<RescaleEvent>{{RescaleEvent::kLeave, left, left}});
  EXPECT_EQ(seen.leave, 1e-3);
  EXPECT_EQ(seen.leave_stall, 1e-3);
  EXPECT_EQ(seen.start, 0);
  const RescaleCosts costs = completed(seen, {});
  EXPECT_EQ(costs.leave, 1e-3);
  EXPECT_EQ(costs.start, RescaleCosts{}.start);
  EXPECT_EQ(completed(measured_costs({}, {}, {}), {}).join, RescaleCosts{}.join);
}

TEST(Observed, StepsAreReadFromARun) {
  const TemporaryFolder folder;
  folder.write("metrics.jsonl",
               "{\"step\":1,\"generation\":1,\"workers\":2,\"time\":\"2026-05-04T10:11:12.250Z\"}\n"
               "{\"validation\":1}\nbroken\n"
               "{\"step\":2,\"generation\":1,\"workers\":2,\"time\":\"2026-05-04T10:11:12.500Z\"}\n");
  const std::vector<StepRecord> steps = read_steps(folder.path());
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_NEAR(steps[1].time - steps[0].time, 0.25, 1e-6);  // seconds since 1970 have 2^-22
  EXPECT_EQ(steps[1].workers, 2);
}

TEST(Observed, TablesAreAsTheSimulatorReadsThem) {
  const Measured one{"net",
                     {{"provenance", "a test"},
                      {"virtual_ranks", 4},
                      {"batch", 8},
                      {"costs",
                       {{"start", 1},
                        {"join", 1},
                        {"join_stall", 0.1},
                        {"leave", 1},
                        {"leave_stall", 0.1},
                        {"death_stall", 0.1},
                        {"stop", 1},
                        {"checkpoint_every", 60}}},
                      {"rates", {{{"kind", "cpu-1"}, {"workers", 1}, {"rate", 10}, {"measured", true}}}}}};
  const Table table = parse_table(table_of({one}).dump(), "a test");
  EXPECT_EQ(table.at("net").speed->rate({{"cpu-1", 1}}, {}).samples, 10);
  EXPECT_NE(message_of<UsageError>([&] { table_of({one, one}); }).find("net"), std::string::npos);
  const TemporaryFolder folder;
  const std::filesystem::path config = folder.write("other.toml", "[run]\nname = \"other\"\nsteps = 1\n");
  EXPECT_THROW(check_simulation({.configs = {config}}, table, policy_of("equal")), UsageError);
  EXPECT_THROW(check_simulation({}, table, policy_of("equal")), UsageError);
  EXPECT_THROW(measure(config, {.slots = 1}), UsageError);
}

TEST(Observed, TheErrorIsThatOfTheWorstSum) {
  const CheckResult result{.jobs = {{"one", "s", 10, 20}}, .sums = {{"a", "s", 100, 97}, {"b", "s", 100, 102}}};
  EXPECT_NEAR(result.worst(), 0.03, 1e-12);
  EXPECT_NE(text_of(result).find("-3.0 %"), std::string::npos) << text_of(result);
  EXPECT_EQ(text_of(result).find(" to "), text_of(result).rfind(" to ")) << "the heading's alone:\n" << text_of(result);
  const CheckResult several{.jobs = {}, .sums = {{"a", "s", 100, 97, 90, 104.5}}};
  EXPECT_NE(text_of(several).find("90.0 to 104.5"), std::string::npos) << text_of(several);
}

class WarmStart : public testing::Test {
 protected:
  static JobRecord job(const std::string& config, std::vector<std::string> overrides = {}) {
    JobRecord job;
    job.config = config;
    job.overrides = std::move(overrides);
    job.batch = 32;
    job.virtual_ranks = 8;
    job.max_workers = 4;
    return job;
  }
  Store store_{":memory:"};
};

TEST_F(WarmStart, AJobBeginsWithWhatTheOneBeforeItTaught) {
  const Id first = store_.jobs.add(job("a", {"run.name=x"}));
  for (const int n : {4, 2, 1})
    store_.measurements.record(
        first, n, {.workers = {{"cpu-1", n}}, .shape = {}, .seconds = 20, .rate = 100.0 * n / (1 + 0.02 * n)});
  const Id second = store_.jobs.add(job("a", {"run.name=y", "run.steps=7"})), other = store_.jobs.add(job("b"));
  JobModels models(store_);
  const Rate warm = models.of(*store_.jobs.find(second), {})->rate({{"cpu-1", 2}}, {});
  EXPECT_NEAR(warm.samples, 200 / 1.04, 0.05 * 200);  // predictions are used if they are within 5 %
  EXPECT_LT(warm.error, 0.3);
  const Rate cold = models.of(*store_.jobs.find(other), {})->rate({{"cpu-1", 2}}, {});
  EXPECT_EQ(cold.error, 1);
}

// A pool's measurements become a table for the simulator.
TEST_F(WarmStart, IsATableToo) {
  JobRecord job = this->job("a");
  job.name = "net";
  const Id id = store_.jobs.add(job);
  EXPECT_TRUE(learned(store_).empty()) << "nothing was measured";
  store_.measurements.record(id, 1, {.workers = {{"cpu-1", 2}}, .shape = {}, .seconds = 20, .rate = 100});
  store_.measurements.record(id, 2, {.workers = {{"cpu-1", 2}}, .shape = {}, .seconds = 20, .rate = 110});
  store_.measurements.record(id, 3, {.workers = {{"cpu-1", 1}}, .shape = {.width = 2}, .seconds = 20, .rate = 130});
  job = *store_.jobs.find(id);
  job.costs.join = 7;
  job.validations.samples = 50;
  store_.jobs.save(job);
  const Table table = parse_table(table_of(learned(store_)).dump(), "a test");
  const Model& model = table.at("net");
  EXPECT_EQ(model.costs.join, 7);
  EXPECT_EQ(model.costs.leave, RescaleCosts{}.leave);
  EXPECT_EQ(model.validations.samples, 50);
  EXPECT_EQ(model.speed->rate({{"cpu-1", 2}}, {}).samples, 110) << "as it was last";
  EXPECT_EQ(model.speed->rate({{"cpu-1", 1}}, {.width = 2}).samples, 130);
}

TEST_F(WarmStart, WhatRanOutOfMemoryIsRememberedToo) {
  const Id first = store_.jobs.add(job("a"));
  store_.measurements.record(first, 1, {.workers = {{"cpu-1", 1}}, .shape = {}, .seconds = 20, .rate = 100});
  store_.measurements.record(first, -1, {.workers = {{"gpu", 1}}, .shape = {}, .seconds = 0, .rate = 0});
  const Id second = store_.jobs.add(job("a"));
  JobModels models(store_);
  const auto speed = models.of(*store_.jobs.find(second), {});
  EXPECT_EQ(speed->rate({{"gpu", 2}}, {}).samples, 0);
  EXPECT_GT(speed->rate({{"gpu", 2}}, {1, true}).samples, 0);
  EXPECT_GT(speed->rate({{"cpu-1", 2}}, {}).samples, 0);
}

TEST_F(WarmStart, WhatChangesAStepIsAnotherJob) {
  EXPECT_TRUE(JobModels::alike(job("a", {"run.seed=1"}), job("a", {"run.seed=2"})));
  EXPECT_FALSE(JobModels::alike(job("a"), job("a", {"run.recompute=true"})));
  EXPECT_FALSE(JobModels::alike(job("a"), job("a", {"model.channels=7"})));
  EXPECT_FALSE(JobModels::alike(job("a"), job("b")));
}

}  // namespace
}  // namespace elinvar::pool
