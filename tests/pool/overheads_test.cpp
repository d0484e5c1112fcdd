// A job's work besides its steps, as its run directory shows it, and the accuracy of the pool's predictions of speed.
#include <gtest/gtest.h>

#include "elastic/ledger/utc_time.h"
#include "tests/pool/scene.h"
#include "tests/support/temporary_folder.h"
#include "tools/pool/policies/advisor.h"
#include "tools/pool/profiling/job_models.h"
#include "tools/pool/profiling/prediction_error.h"
#include "tools/pool/profiling/trials.h"

namespace elinvar::pool {
namespace {

using elinvar::test::TemporaryFolder;

// Times with milliseconds, as in the files of a run. Values read back are compared to kClock.
constexpr double kClock = 1e-3;  // seconds

std::string clock_at(double second) { return fmt::format("2026-05-04T10:00:{:06.3f}Z", second); }

// A run of 30 steps of 0.1 s that begins at second 2, with validations of 3 s after 10 and 20 of them, and one of 4 s
// at its end.
class RunSeen : public testing::Test {
 protected:
  void SetUp() override {
    events_ = fmt::format("{{\"time\":\"{}\",\"event\":\"start\",\"steps\":30}}\n", clock_at(1));
    double now = 2;
    for (int step = 1; step <= 30; ++step) {
      if (step > 1 && step % 10 == 1) {
        metrics_ += fmt::format("{{\"step\":{},\"validation_loss\":1}}\n", step - 1);
        now += 3;
      }
      metrics_ += fmt::format("{{\"step\":{},\"generation\":1,\"workers\":2,\"loss\":1,\"time\":\"{}\"}}\n", step,
                              clock_at(now += 0.1));
    }
    last_ = now;
    begin_ = seconds_of_utc(clock_at(0)).value();
  }
  void write() const {
    folder_.write("events.jsonl", events_);
    folder_.write("metrics.jsonl", metrics_);
  }
  void finish() {
    metrics_ += "{\"step\":30,\"validation_loss\":1}\n";
    events_ += fmt::format("{{\"time\":\"{}\",\"event\":\"end\"}}\n", clock_at(last_ + 4));
    folder_.write("result.json", R"({"status":"finished","step":30,"steps":30})");
    write();
  }

  TemporaryFolder folder_;
  std::string events_, metrics_;
  double last_ = 0, begin_ = 0;
};

TEST_F(RunSeen, StepsAreMeasuredWithoutValidations) {
  write();
  RunStatusReader watch(folder_.path());
  const RunStatus& status = watch.look(0);
  EXPECT_EQ(status.validations, 2);
  EXPECT_NEAR(status.validation_seconds, 6, kClock);
  EXPECT_NEAR(status.measured_seconds / static_cast<double>(status.measured_steps), 0.1, kClock);
  EXPECT_NEAR(status.first_step_at - begin_, 2.1, kClock);
  EXPECT_EQ(status.computed_at, 0);
}

TEST_F(RunSeen, TheLastValidationIsKnownByTheEnd) {
  write();
  RunStatusReader watch(folder_.path());
  watch.look(0);
  finish();
  const RunStatus& status = watch.look(1);
  EXPECT_EQ(status.result, "finished");
  EXPECT_EQ(status.validations, 3);
  EXPECT_NEAR(status.validation_seconds, 10, kClock);
  EXPECT_NEAR(status.computed_at - begin_, last_ + 4, kClock);
  EXPECT_EQ(watch.look(2).validations, 3) << "once";
}

// A daemon that starts when a job has run for long reads only the end of a long file.
TEST_F(RunSeen, ThatItBeganIsNotSeenInTheMiddle) {
  for (int step = 31; step <= 2000; ++step)
    metrics_ += fmt::format("{{\"step\":{},\"generation\":1,\"workers\":2,\"loss\":1,\"time\":\"{}\"}}\n", step,
                            clock_at(last_ + 0.001 * (step - 30)));
  ASSERT_GT(metrics_.size(), size_t{128} << 10);
  write();
  EXPECT_EQ(RunStatusReader(folder_.path()).look(0).first_step_at, 0);
  // Another start of the run is seen.
  events_ += fmt::format("{{\"time\":\"{}\",\"event\":\"start\",\"steps\":3000}}\n", clock_at(last_ + 3));
  for (int step = 2001; step <= 2003; ++step)
    metrics_ += fmt::format("{{\"step\":{},\"generation\":2,\"workers\":2,\"loss\":1,\"time\":\"{}\"}}\n", step,
                            clock_at(last_ + 4 + 0.1 * (step - 2000)));
  write();
  EXPECT_NEAR(RunStatusReader(folder_.path()).look(0).first_step_at - begin_, last_ + 4.1, kClock);
}

TEST(PoolBesides, ValidationsAreWork) {
  const Validations v{.every = 10, .samples = 100};
  EXPECT_EQ(work_for(10, 8, v), 80) << "it is computed beside the next step";
  EXPECT_EQ(work_for(11, 8, v), 88 + 100);
  EXPECT_EQ(work_of_all(30, 8, v), 240 + 300);
  EXPECT_EQ(work_of_all(30, 8, {.every = 0, .samples = 100}), 240 + 100);
  EXPECT_EQ(work_of_all(30, 8, {}), 240);
}

TEST(PoolBesides, IsKnownFromAJobLikeIt) {
  Store store(":memory:");
  JobRecord job;
  job.config = "a";
  const Id first = store.jobs.add(job);
  JobRecord seen = *store.jobs.find(first);
  seen.validations.samples = 50;
  seen.costs.start = 3;
  seen.costs.finish = 0.5;
  seen.costs.join = 7;
  store.jobs.save(seen);
  job.validations.every = 7;
  const Id second = store.jobs.add(job);
  job.config = "b";
  const Id other = store.jobs.add(job);
  JobModels models(store);
  const Overheads like = models.overheads(*store.jobs.find(second));
  EXPECT_EQ(like.validations.samples, 50);
  EXPECT_EQ(like.validations.every, 7);
  EXPECT_EQ(like.costs.start, 3);
  EXPECT_EQ(like.costs.finish, 0.5);
  EXPECT_EQ(like.costs.join, 7);
  EXPECT_EQ(like.costs.leave, RescaleCosts{}.leave) << "nobody has seen one";
  EXPECT_EQ(models.overheads(*store.jobs.find(other)).costs.start, RescaleCosts{}.start);
  EXPECT_EQ(models.overheads(*store.jobs.find(other)).validations.samples, 0);
}

TEST(PoolPredictionError, TellsErrorsAndWhatTrialsTook) {
  const auto measured = [](int n, double rate, double predicted, double doubt, bool trial = false) {
    return Measurement{.workers = {{"cpu-1", n}},
                       .shape = {},
                       .seconds = 20,
                       .rate = rate,
                       .predicted = predicted,
                       .predicted_error = doubt,
                       .trial = trial};
  };
  const std::vector<std::vector<Measurement>> jobs = {
      {measured(4, 100, 0, 1), measured(2, 60, 66, 0.2, /*trial=*/true), measured(4, 100, 98, 0.02)},
      {measured(1, 50, 52, 0.01)}};
  const PredictionErrors f = prediction_errors(jobs);
  EXPECT_EQ(f.all.count, 3u) << "of the first nothing was known";
  // 1e-9: the numbers above are not representable exactly.
  EXPECT_NEAR(f.all.median, 0.04, 1e-9);
  EXPECT_NEAR(f.all.high, 0.1, 1e-9);
  EXPECT_EQ(f.sure.count, 2u);
  EXPECT_EQ(f.trials, 1u);
  const RescaleCosts costs;
  EXPECT_NEAR(f.paid, (kTrialSeconds + costs.join) * 0.4 + costs.leave_stall + costs.join_stall, 1e-9);
  EXPECT_EQ(f.ran, 80);
  EXPECT_NE(text_of(f).find("4.0 % (median)"), std::string::npos) << text_of(f);
  EXPECT_EQ(prediction_errors({}).all.count, 0u);
}

// The first and the last step of each of two generations are kept.
TEST_F(RunSeen, TheTurnsOfGenerationsAreKept) {
  for (int step = 31; step <= 40; ++step)
    metrics_ += fmt::format("{{\"step\":{},\"generation\":2,\"workers\":3,\"loss\":1,\"time\":\"{}\"}}\n", step,
                            clock_at(last_ + 0.1 * (step - 30)));
  write();
  RunStatusReader watch(folder_.path());
  const std::vector<StepRecord> turns = watch.look(0).turns;
  ASSERT_EQ(turns.size(), 4u);
  EXPECT_NEAR(turns[1].time - begin_, last_, kClock);
  EXPECT_EQ(turns[1].workers, 2);
  EXPECT_NEAR(turns[2].time - begin_, last_ + 0.1, kClock);
  EXPECT_EQ(turns[3].generation, 2);
}

// Steps of two workers may be reported after the generation of one worker has begun.
TEST_F(RunSeen, WorkersSayWhoseAStepIs) {
  for (int step = 31; step <= 60; ++step)
    metrics_ += fmt::format("{{\"step\":{},\"generation\":2,\"workers\":{},\"loss\":1,\"time\":\"{}\"}}\n", step,
                            step <= 38 ? 2 : 1, clock_at(last_ + (step <= 38 ? 0.1 : 0.2) * (step - 30)));
  write();
  RunStatusReader watch(folder_.path());
  const RunStatus& status = watch.look(0);
  EXPECT_EQ(status.workers, 1);
  EXPECT_NEAR(status.measured_seconds / static_cast<double>(status.measured_steps), 0.2, kClock);
  EXPECT_EQ(status.measured_steps, 60 - 39 - 2) << "from the third step of the one worker on";
  const std::map<int, double> usual{{1, 0.2}, {2, 0.1}};
  const RescaleCosts seen =
      measured_costs(status.turns, usual,
                     std::vector<RescaleEvent>{{RescaleEvent::kLeave, begin_ + last_ + 0.05, begin_ + last_ + 1}});
  EXPECT_NEAR(seen.leave_stall, 0.2 * 9 - 0.1 * 8 - 0.2, 10 * kClock);  // a sum of differences between many times
  EXPECT_EQ(step_seconds(read_steps(folder_.path())).size(), 2u);
}

class PoolPromises : public testing::Test, protected test::Scene {
 protected:
  PoolPromises() : Scene(1) {}
  Id job_ = 0;
};

// A size seen before is predicted as measured; for a new one the model states its certainty.
TEST_F(PoolPromises, ArePutToTheTest) {
  learns_ = true;
  policy_ = [](const Pool& pool) { return with_advice(pool, equal(pool)); };
  machines({machine("a", 4)});
  const Id id = submit(100000);
  for (const int slots : {4, 2, 4, 2, 4}) {
    machines({machine("a", slots)});
    ticks(60);
  }
  const std::vector<std::vector<Measurement>> measured = store_.measurements.all();
  const PredictionErrors f = prediction_errors(measured);
  EXPECT_GE(f.all.count, 3u) << story();
  EXPECT_EQ(f.all.count, count("speed", id)) << story();
  EXPECT_LT(f.sure.high, 0.05) << story();
}

// Costs of joins and leaves are measured as they happen, shown, and used from then on.
TEST_F(PoolPromises, CostsOfChangesAreLearned) {
  for (const int slots : {2, 4, 2, 4}) {
    machines({machine("a", slots)});
    if (job_ == 0) job_ = submit(100000);
    ticks(40);
  }
  const RescaleCosts costs = job(job_).costs;
  // The scheduler looks once a second.
  EXPECT_NEAR(costs.join, 2, 1.1) << "in this world a newcomer is ready after 2 s\n" << story();
  EXPECT_GT(costs.join_stall, 0) << story();
  EXPECT_EQ(costs.death_stall > 0, count("lost", job_) > 0) << story();
  EXPECT_GE(count("costs", job_), 1u) << story();
}

}  // namespace
}  // namespace elinvar::pool
