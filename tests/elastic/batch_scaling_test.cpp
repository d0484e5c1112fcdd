// The coordinator's knowledge of the batch, and the history that it belongs to.
#include "elastic/protocol/batch_scaling.h"

#include <gtest/gtest.h>

#include "tests/elastic/coordinated_job.h"

namespace elinvar {
namespace {

using test::CoordinatedJob;
using test::from;

const CoordinatorOptions kAdaptiveJob{
    .steps = 100, .plan = {.vranks = 4}, .scaling = {.batch = 64, .batch_max = 256, .goal = 1 << 20}};

StepFacts step_of(int64_t step, int64_t batch, std::vector<double> seconds, double reduce_seconds = 0.5) {
  StepFacts facts{.step = step};
  facts.update = UpdateFacts{
      .samples = batch, .seconds = std::move(seconds), .reduce_seconds = reduce_seconds, .batch_size = batch};
  return facts;
}

TEST(BatchScaling, OfAnExactRunDoesNothing) {
  CoordinatedJob job;
  job.run({1, 2});
  BatchScaling scaling(job.state);
  scaling.take_over({});
  scaling.begin_history(7);
  EXPECT_EQ(job.state.steps, 100);
  EXPECT_TRUE(scaling.of_this_history(from(1, 1)));
  EXPECT_FALSE(scaling.record(2));
  EXPECT_FALSE(scaling.other_batch(4, /*larger=*/false));
}

TEST(BatchScaling, WhatOlderGenerationsTellIsPast) {
  CoordinatedJob job(kAdaptiveJob);
  BatchScaling scaling(job.state);
  scaling.take_over({});
  EXPECT_GT(job.state.steps, int64_t{1} << 40) << "its goal ends the run";
  EXPECT_TRUE(scaling.of_this_history(from(1, 1)));
  scaling.begin_history(7);
  EXPECT_FALSE(scaling.of_this_history(from(1, 6)));
  EXPECT_TRUE(scaling.of_this_history(from(1, 7)));
  EXPECT_EQ(scaling.record(3)->history, 7);
}

TEST(BatchScaling, ANewCoordinatorGoesOnWithTheHistoryOfMembersThatLive) {
  Generation newest = CoordinatedJob::generation(5, {1, 2});
  newest.scaling = GenerationScaling{.base_workers = 3, .history = 2};
  for (const bool alive : {true, false}) {
    CoordinatedJob job(kAdaptiveJob);
    BatchScaling scaling(job.state);
    scaling.take_over({.newest = newest, .before = {}, .members_alive = alive});
    EXPECT_EQ(scaling.record(9)->base_workers, 3) << "as many as the run began with";
    EXPECT_EQ(scaling.of_this_history(from(1, 2)), alive);
    EXPECT_TRUE(scaling.of_this_history(from(1, 6)));
  }
}

TEST(BatchScaling, TheBatchFollowsWorkersAndMeasurements) {
  CoordinatedJob job(kAdaptiveJob);
  job.world.recorded.scaling_state.batch = 64;
  BatchScaling scaling(job.state);
  scaling.take_over({});
  EXPECT_EQ(scaling.record(1)->base_workers, 1);
  job.run({1, 2});
  for (GenerationMember& m : job.state.current->members) m.share = m.first_share = {{0, 2}};
  EXPECT_FALSE(scaling.other_batch(2, /*larger=*/false)) << "nothing is measured: the batch is shared";
  // An exchange takes five times as long as all rank gradients of a step.
  scaling.measure(step_of(1, 64, {0.025, 0.025}));
  const auto other = scaling.other_batch(2, /*larger=*/true);
  ASSERT_TRUE(other);
  EXPECT_EQ(other->batch, 128);
  scaling.use(128);
  EXPECT_FALSE(scaling.other_batch(2, /*larger=*/true));
  EXPECT_EQ(scaling.other_batch(1, /*larger=*/false)->batch, 64);
  EXPECT_FALSE(scaling.other_batch(1, /*larger=*/true));
}

// Two replicas of two workers, which are as fast as two workers of which each computes rank gradients alone.
TEST(BatchScaling, ModelReplicasCountInPlaceOfWorkers) {
  CoordinatorOptions options = kAdaptiveJob;
  options.arrangement.tp = 2;
  options.virtual_shards = 4;
  CoordinatedJob job(options);
  job.world.recorded.scaling_state.batch = 64;
  BatchScaling scaling(job.state);
  scaling.take_over({});
  EXPECT_EQ(scaling.record(2)->base_workers, 2);
  job.run({1, 2, 3, 4});
  job.state.current->shards = 4;
  for (int m = 0; m < 4; ++m) {
    GenerationMember& member = job.state.current->members[static_cast<size_t>(m)];
    member.share = member.first_share = {{m / 2 * 2, m / 2 * 2 + 2}};
    member.place = {.replica = m / 2, .shards = m % 2 == 0 ? Interval{0, 3} : Interval{3, 4}};
  }
  EXPECT_FALSE(scaling.other_batch(4, /*larger=*/false)) << "nothing is measured: the batch is shared";
  // Each worker alone would take four or twelve times 0.025 s, so that both need as long for their shards.
  scaling.measure(step_of(1, 64, {0.1 / 3, 0.1, 0.1 / 3, 0.1}));
  const auto other = scaling.other_batch(4, /*larger=*/true);
  ASSERT_TRUE(other);
  EXPECT_EQ(other->batch, 128);
  EXPECT_EQ(other->reason, "a batch of 128, 64 for each of 2 model replicas");
  scaling.use(128);
  EXPECT_EQ(scaling.other_batch(2, /*larger=*/false)->batch, 64);
  EXPECT_FALSE(scaling.other_batch(3, /*larger=*/false)) << "two replicas, of which one is a single worker";
}

TEST(BatchScaling, StepsOfOtherMembersOrPartsOfABatchAreNoMeasurement) {
  CoordinatedJob job(kAdaptiveJob);
  job.world.recorded.scaling_state.batch = 64;
  BatchScaling scaling(job.state);
  scaling.take_over({});
  (void)scaling.record(1);
  job.run({1, 2});
  for (GenerationMember& m : job.state.current->members) m.share = m.first_share = {{0, 2}};
  scaling.measure(step_of(1, 64, {0.025}));
  StepFacts last = step_of(1, 64, {0.025, 0.025});
  last.update->samples = 40;
  scaling.measure(last);
  EXPECT_FALSE(scaling.other_batch(2, /*larger=*/true));
}

// Steps that the ledger has are repeated with the batches in the ledger.
TEST(BatchScaling, TheLedgerDecidesUpToItsEnd) {
  CoordinatedJob job(kAdaptiveJob);
  job.world.recorded = {.scaling_state = {.samples = 5, .batch = 64}, .changes = {{4, 128}}, .steps = 6};
  BatchScaling scaling(job.state);
  scaling.take_over({});
  EXPECT_EQ(scaling.first_state().samples, 5);
  scaling.use(128);
  job.run({1});
  job.state.workers.at(1).completed = 5;
  EXPECT_EQ(scaling.record(1)->recorded.size(), 1u);
  EXPECT_FALSE(scaling.other_batch(1, /*larger=*/false));
  job.state.workers.at(1).completed = 6;
  EXPECT_EQ(scaling.other_batch(1, /*larger=*/false)->batch, 64);
  job.state.workers.at(1).completed = 7;
  EXPECT_TRUE(scaling.record(1)->recorded.empty());
}

}  // namespace
}  // namespace elinvar
