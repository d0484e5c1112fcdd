// Jobs whose arrangement changes while they train, in the simulator: a person asks for other ones at any time, and
// members come to hold the state in another form, to keep other buckets, and to compute rank gradients with others.
#include <gtest/gtest.h>

#include "tests/elastic/simulator/random_schedules.h"

namespace elinvar {
namespace {

// Most changes happen as planned. In some a fence comes between the plan and its first step, or in that step.
Happened expect_schedules_of_changes_hold(RandomJobs jobs) {
  jobs.rearranged = true;
  const Happened happened = expect_random_schedules_hold(jobs);
  if (happened.schedules < 50) return happened;
  EXPECT_GT(happened.rearranged, happened.schedules / 2);
  EXPECT_GT(happened.reformed, happened.schedules / 2);
  EXPECT_GT(happened.reforms_behind_fence, happened.schedules / 40);
  EXPECT_GT(happened.moved, happened.schedules);
  EXPECT_GT(happened.fetched, 4 * happened.schedules);
  if (jobs.most.replica() == 1) return happened;
  EXPECT_GT(happened.exchanged, 20 * happened.schedules);
  EXPECT_GT(happened.passed, 20 * happened.schedules);
  EXPECT_GT(happened.given_up, happened.schedules / 4);
  return happened;
}

constexpr Arrangement kStagesOfZero = {.zero = kMostZero, .copies = 2};

TEST(RearrangementProtocol, RandomSchedulesEndAsTheUndisturbedRun) {
  expect_schedules_of_changes_hold({.schedules = 100});
}

TEST(RearrangementProtocol, RandomSchedulesOfStagesOfZeroEndAsTheUndisturbedRun) {
  expect_schedules_of_changes_hold({.most = kStagesOfZero, .schedules = 100});
}

TEST(RearrangementProtocol, RandomSchedulesOfStagesOfZeroWithASparseTableEndAsTheUndisturbedRun) {
  expect_schedules_of_changes_hold({.table = true, .most = kStagesOfZero, .schedules = 100});
}

TEST(RearrangementProtocol, RandomSchedulesWithAdaptiveScalingAgreeOnEveryBatch) {
  const Happened happened = expect_schedules_of_changes_hold({.adaptive = true, .schedules = 60});
  EXPECT_GE(happened.batch_changes, happened.schedules / 20);
}

TEST(RearrangementProtocol, RandomSchedulesOfStagesOfZeroWithAdaptiveScalingAgreeOnEveryBatch) {
  expect_schedules_of_changes_hold({.adaptive = true, .most = kStagesOfZero, .schedules = 60});
}

// Groups of GPUs no longer add up gradients from ZeRO's second stage on.
TEST(RearrangementProtocol, RandomSchedulesOfGpusLeaveTheirGroups) {
  const Happened happened = expect_schedules_of_changes_hold({.gpus = true, .schedules = 50});
  EXPECT_GE(happened.in_group, happened.schedules / 20);
}

}  // namespace
}  // namespace elinvar
