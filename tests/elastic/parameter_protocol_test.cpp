// Jobs whose members keep some buckets' parameters and fetch all others twice for each rank gradient (ZeRO-3), in the
// simulator, which compares each parameter with that of the undisturbed run at this step.
#include <gtest/gtest.h>

#include "tests/elastic/simulator/random_schedules.h"

namespace elinvar {
namespace {

// Requests and answers are lost, members are killed while others wait for their parameters, fences come between the
// segments of a pass, and passes begin anew while parameters are asked for.
Happened expect_schedules_of_fetches_hold(RandomJobs jobs) {
  jobs.zero = 3;
  const Happened happened = expect_random_schedules_hold(jobs);
  if (happened.schedules < 100) return happened;
  EXPECT_GT(happened.fetched, 40 * happened.schedules);
  EXPECT_GT(happened.fetches_over, happened.schedules / 10);
  EXPECT_GE(happened.lost_parameters, happened.schedules / 400);
  EXPECT_GE(happened.killed_providers, happened.schedules / 200);
  EXPECT_EQ(happened.fetched_rows > 3 * happened.schedules, jobs.table);
  EXPECT_GT(happened.opened, 5 * happened.schedules);
  if (jobs.tp * jobs.pp == 1) {
    EXPECT_GT(happened.repeated, happened.schedules / 10);
  }
  expect_parts_happened(jobs, happened);
  return happened;
}

TEST(ParameterProtocol, RandomSchedulesEndAsTheUndisturbedRun) { expect_schedules_of_fetches_hold({.schedules = 150}); }

TEST(ParameterProtocol, RandomSchedulesWithOneCopyAndATiedSegmentEndAsTheUndisturbedRun) {
  expect_schedules_of_fetches_hold({.copies = 1, .tied = true, .schedules = 150});
}

TEST(ParameterProtocol, RandomSchedulesWithAdaptiveScalingAgreeOnEveryBatch) {
  expect_schedules_of_fetches_hold({.adaptive = true, .schedules = 100});
}

TEST(ParameterProtocol, RandomSchedulesWithOneCopyAndAdaptiveScalingAgreeOnEveryBatch) {
  expect_schedules_of_fetches_hold({.adaptive = true, .copies = 1, .schedules = 100});
}

TEST(ParameterProtocol, RandomSchedulesOfPairsEndAsTheUndisturbedRun) {
  expect_schedules_of_fetches_hold({.tp = 2, .schedules = 100});
}

TEST(ParameterProtocol, RandomSchedulesOfTriplesWithOneCopyAgreeOnEveryBatch) {
  expect_schedules_of_fetches_hold({.adaptive = true, .copies = 1, .tp = 3, .schedules = 100});
}

TEST(ParameterProtocol, RandomSchedulesWithASparseTableEndAsTheUndisturbedRun) {
  expect_schedules_of_fetches_hold({.table = true, .schedules = 150});
}

TEST(ParameterProtocol, RandomSchedulesWithASparseTableAndOneCopyAgreeOnEveryBatch) {
  expect_schedules_of_fetches_hold({.adaptive = true, .copies = 1, .table = true, .schedules = 100});
}

TEST(ParameterProtocol, RandomSchedulesOfTwoStagesWithASparseTableEndAsTheUndisturbedRun) {
  expect_schedules_of_fetches_hold({.pp = 2, .table = true, .schedules = 100});
}

TEST(ParameterProtocol, RandomSchedulesOfTwoStagesEndAsTheUndisturbedRun) {
  expect_schedules_of_fetches_hold({.pp = 2, .schedules = 100});
}

TEST(ParameterProtocol, RandomSchedulesOfThreeStagesWithOneCopyAndATiedSegmentEndAsTheUndisturbedRun) {
  expect_schedules_of_fetches_hold({.copies = 1, .pp = 3, .tied = true, .schedules = 100});
}

TEST(ParameterProtocol, RandomSchedulesOfStagesOfPairsEndAsTheUndisturbedRun) {
  expect_schedules_of_fetches_hold({.tp = 2, .pp = 2, .tied = true, .schedules = 100});
}

TEST(ParameterProtocol, RandomSchedulesOfStagesOfPairsWithOneCopyAgreeOnEveryBatch) {
  expect_schedules_of_fetches_hold({.adaptive = true, .copies = 1, .tp = 2, .pp = 2, .schedules = 100});
}

}  // namespace
}  // namespace elinvar
