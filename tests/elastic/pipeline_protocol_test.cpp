// Jobs whose model replicas are pipelines, in the simulator: the members of each stage compute passes of rank gradients
// through their segments, and get the inputs of the passes from other stages.
#include <gtest/gtest.h>

#include "tests/elastic/simulator/random_schedules.h"

namespace elinvar {
namespace {

// Some members are killed while another one waits for what they are to give, messages of all kinds are lost, and fences
// come in the middle of passes.
Happened expect_schedules_of_pipelines_hold(const RandomJobs& jobs) {
  const Happened happened = expect_random_schedules_hold(jobs);
  if (happened.schedules < 100) return happened;
  EXPECT_GT(happened.passed, 40 * happened.schedules);
  EXPECT_GT(happened.given_up, happened.schedules / 2);
  EXPECT_GT(happened.killed_ahead, happened.schedules / 40);
  EXPECT_GT(happened.lost_boundary, happened.schedules / 100);
  EXPECT_GT(happened.digested, 10 * happened.schedules);
  EXPECT_GT(happened.lost_digests, 0);
  EXPECT_GT(happened.attached, 10 * happened.schedules);
  EXPECT_GE(happened.lost_within, jobs.tp > 1 ? 1 : 0);
  expect_parts_happened(jobs, happened);
  return happened;
}

TEST(PipelineProtocol, RandomSchedulesOfTwoStagesEndAsTheUndisturbedRun) {
  const Happened happened = expect_schedules_of_pipelines_hold({.pp = 2, .schedules = 250});
  if (happened.schedules < 100) return;
  EXPECT_GT(happened.opened, happened.schedules);
  EXPECT_GT(happened.interrupted, happened.schedules / 50);
}

TEST(PipelineProtocol, RandomSchedulesOfThreeStagesWithATiedSegmentEndAsTheUndisturbedRun) {
  expect_schedules_of_pipelines_hold({.pp = 3, .tied = true, .schedules = 200});
}

TEST(PipelineProtocol, RandomSchedulesOfFourStagesEndAsTheUndisturbedRun) {
  expect_schedules_of_pipelines_hold({.pp = 4, .schedules = 150});
}

TEST(PipelineProtocol, RandomSchedulesOfTwoStagesWithAdaptiveScalingAgreeOnEveryBatch) {
  expect_schedules_of_pipelines_hold({.adaptive = true, .pp = 2, .tied = true, .schedules = 150});
}

TEST(PipelineProtocol, RandomSchedulesOfTwoStagesWithShardedStateEndAsTheUndisturbedRun) {
  expect_schedules_of_pipelines_hold({.zero = 1, .pp = 2, .schedules = 150});
}

// A member of several runs of segments passes its gradients on only at their end.
TEST(PipelineProtocol, RandomSchedulesOfThreeStagesWithoutWholeGradientsEndAsTheUndisturbedRun) {
  const Happened happened =
      expect_schedules_of_pipelines_hold({.zero = 2, .copies = 1, .pp = 3, .tied = true, .schedules = 150});
  if (happened.schedules < 100) return;
  EXPECT_GT(happened.opened, 10 * happened.schedules);
}

TEST(PipelineProtocol, RandomSchedulesOfStagesOfPairsEndAsTheUndisturbedRun) {
  expect_schedules_of_pipelines_hold({.tp = 2, .pp = 2, .schedules = 200});
}

TEST(PipelineProtocol, RandomSchedulesOfStagesOfPairsWithShardedStateEndAsTheUndisturbedRun) {
  expect_schedules_of_pipelines_hold({.zero = 1, .copies = 1, .tp = 2, .pp = 2, .tied = true, .schedules = 150});
}

TEST(PipelineProtocol, RandomSchedulesOfStagesOfTriplesWithoutWholeGradientsAgreeOnEveryBatch) {
  expect_schedules_of_pipelines_hold({.adaptive = true, .zero = 2, .tp = 3, .pp = 2, .schedules = 150});
}

}  // namespace
}  // namespace elinvar
