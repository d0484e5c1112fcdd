// Adaptive scaling: the rule for the batch, and the ramp of the learning rate.
#include "elastic/step/scaling.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "elastic/run/generation_store.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

constexpr ScalingOptions kOptions{.batch = 64, .batch_max = 100000, .ramp_steps = 100};
constexpr int kVranks = 16;

int64_t batch_for(int workers, const Profile& profile, int base_workers = 1) {
  return scale(kOptions, kVranks, base_workers, workers, profile).batch;
}

// A batch has 64 samples, and a rank gradient takes 4 ms. The rounds of 16 virtual ranks on 1, 2, .. workers are 16 8 6
// 4 4 3 3 2 .. 2 1.
TEST(Scaling, TheBestNumberOfWorkersIsThatOfTheShortestStep) {
  EXPECT_EQ(best_workers(64, kVranks, {}), kVranks);
  EXPECT_EQ(best_workers(64, kVranks, {.sample_seconds = 0.001}), kVranks);
  EXPECT_EQ(best_workers(64, kVranks, {.sample_seconds = 0.001, .exchange_seconds = 0.1}), 1);
  // 42 ms; with 3 workers 44.
  EXPECT_EQ(best_workers(64, kVranks, {.sample_seconds = 0.001, .exchange_seconds = 0.010}), 2);
  // 31 ms; with 6 workers 37.
  EXPECT_EQ(best_workers(64, kVranks, {.sample_seconds = 0.001, .exchange_seconds = 0.005}), 4);
  EXPECT_EQ(best_workers(128, kVranks, {.sample_seconds = 0.001, .exchange_seconds = 0.010}), 4);
  EXPECT_EQ(best_workers(64, 1, {.sample_seconds = 0.001, .exchange_seconds = 0.001}), 1);
}

TEST(Scaling, TheBatchGrowsNoMoreThanTheWorkersNeed) {
  EXPECT_EQ(batch_for(8, {}), 64);  // no measurement says that more workers need a larger batch
  const Profile profile{.sample_seconds = 0.001, .exchange_seconds = 0.005};
  EXPECT_EQ(batch_for(1, profile), 64);
  EXPECT_EQ(batch_for(4, profile), 64);  // strong scaling: 4 is the best number for this batch
  EXPECT_EQ(best_workers(128, kVranks, profile), 4);
  EXPECT_EQ(best_workers(256, kVranks, profile), 8);
  EXPECT_EQ(batch_for(5, profile), 256);
  EXPECT_EQ(batch_for(8, profile), 256);
  EXPECT_EQ(batch_for(9, profile), 9 * 64);  // 8 workers are also best for a batch of 512
  const Profile slow{.sample_seconds = 0.001, .exchange_seconds = 10};
  EXPECT_EQ(batch_for(2, slow), 128);  // weak scaling
  EXPECT_EQ(batch_for(3, slow), 192);
  EXPECT_EQ(batch_for(3, slow, 2), 96);
  EXPECT_EQ(batch_for(2, slow, 3), 64);     // never less than the configured batch
  EXPECT_EQ(batch_for(99, slow), 16 * 64);  // spares compute nothing
}

TEST(Scaling, TheBatchHasAMaximum) {
  const Profile slow{.sample_seconds = 0.001, .exchange_seconds = 10};
  const ScalingOptions narrow{.batch = 64, .batch_max = 150};
  EXPECT_EQ(scale(narrow, kVranks, 1, 8, slow).batch, 150);
  EXPECT_EQ(scale(narrow, kVranks, 1, 8, slow).reason, "a batch of 150, 18 for each of 8 workers");
  EXPECT_EQ(scale(narrow, kVranks, 1, 1, slow).reason, "1 workers share a batch of 64");
}

// Whatever is measured, more workers never get a smaller batch, and the batch never grows faster than the number of
// workers.
TEST(Scaling, TheBatchIsMonotonous) {
  for (const double exchange : {0.0, 0.0001, 0.001, 0.003, 0.01, 0.1, 1.0}) {
    const Profile profile{.sample_seconds = 0.001, .exchange_seconds = exchange};
    for (int workers = 1; workers <= kVranks; ++workers) {
      EXPECT_LE(batch_for(workers, profile), 64 * workers);
      EXPECT_GE(batch_for(workers, profile), 64);
      if (batch_for(workers, profile) < 64 * workers && best_workers(64, kVranks, profile) < workers) {
        EXPECT_GE(best_workers(batch_for(workers, profile), kVranks, profile), workers);
      }
    }
  }
}

TEST(Scaling, WaitingForSlowerMembersIsNoExchange) {
  MeasuredStep step{.batch = 64, .vranks = 16, .reduce_seconds = 0.5, .ranks = {16}, .rank_seconds = {0.008}};
  Profile profile = measured({}, step);
  EXPECT_DOUBLE_EQ(profile.sample_seconds, 0.002);
  EXPECT_EQ(profile.exchange_seconds, 0);  // a worker alone exchanges nothing
  // The second member has 8 rank gradients of 20 ms, the leader 8 of 10 ms, so the leader waits for 80 ms of the 100.
  step = {.batch = 64, .vranks = 16, .reduce_seconds = 0.1, .ranks = {8, 8}, .rank_seconds = {0.01, 0.02}};
  profile = measured({}, step);
  EXPECT_DOUBLE_EQ(profile.sample_seconds, 0.015 * 16 / 64);
  EXPECT_NEAR(profile.exchange_seconds, 0.02, 1e-12);
  step.reduce_seconds = 0.2;
  EXPECT_NEAR(measured(profile, step).exchange_seconds, 0.7 * 0.02 + 0.3 * 0.12, 1e-12);
  step.rank_seconds = {0, 0};  // a step without rank gradients, like some newcomers' first step
  EXPECT_EQ(measured(profile, step).sample_seconds, profile.sample_seconds);
}

TEST(ScalingState, TheRateGoesToItsNewValueOnAStraightLine) {
  ScalingState scaling_state{.batch = 64};
  for (const int64_t step : {0, 1, 100, 1000}) EXPECT_EQ(lr_factor(scaling_state, step, kOptions), 1.0);
  scaling_state = rescaled(scaling_state, 1000, 256, kOptions);
  EXPECT_EQ(scaling_state, (ScalingState{.batch = 256, .since = 1000, .from = 1}));
  EXPECT_EQ(lr_factor(scaling_state, 1000, kOptions), 1.0);
  EXPECT_EQ(lr_factor(scaling_state, 1025, kOptions), 1.75);
  EXPECT_EQ(lr_factor(scaling_state, 1050, kOptions), 2.5);
  EXPECT_EQ(lr_factor(scaling_state, 1100, kOptions), 4.0);
  EXPECT_EQ(lr_factor(scaling_state, 100000, kOptions), 4.0);
  EXPECT_EQ(rescaled(scaling_state, 1010, 256, kOptions), scaling_state);
}

// The ramp continues from its current value, up or down, without a jump.
TEST(ScalingState, AChangeWithinARampBeginsWhereItIs) {
  const ScalingState grown = rescaled({.batch = 64}, 0, 256, kOptions), back = rescaled(grown, 50, 64, kOptions);
  EXPECT_EQ(back, (ScalingState{.batch = 64, .since = 50, .from = 2.5}));
  EXPECT_EQ(lr_factor(back, 50, kOptions), 2.5);
  EXPECT_EQ(lr_factor(back, 100, kOptions), 1.75);
  EXPECT_EQ(lr_factor(back, 150, kOptions), 1.0);
  const ScalingOptions at_once{.batch = 64, .batch_max = 256, .ramp_steps = 0};
  EXPECT_EQ(lr_factor(rescaled({.batch = 64}, 7, 128, at_once), 7, at_once), 2.0);
}

TEST(ScalingState, IsWrittenAndReadBitByBit) {
  const ScalingState scaling_state{.samples = 12345, .batch = 96, .since = 77, .from = 1.0 / 3};
  EXPECT_EQ(scaling_state_from(nlohmann::json::parse(to_json(scaling_state).dump())), scaling_state);
  EXPECT_EQ(scaling_state_of({{kScalingState, to_tensor(scaling_state)}}), scaling_state);
  EXPECT_EQ(scaling_state_of({}), ScalingState());

  const test::TemporaryFolder folder;
  GenerationStore store(folder.path());
  Generation generation;
  generation.number = 1;
  ASSERT_TRUE(store.create(generation));
  EXPECT_FALSE(store.read(1)->scaling);
  generation.number = 2;
  generation.scaling = {
      .batch = 96, .scaling_state = scaling_state, .base_workers = 3, .history = 2, .recorded = {{80, 128}, {90, 64}}};
  ASSERT_TRUE(store.create(generation));
  const GenerationScaling read = *store.newest()->scaling;
  EXPECT_EQ(read.batch, 96);
  EXPECT_EQ(read.scaling_state, scaling_state);
  EXPECT_EQ(read.base_workers, 3);
  EXPECT_EQ(read.history, 2);
  ASSERT_EQ(read.recorded.size(), 2u);
  EXPECT_EQ(read.recorded[1].step, 90);
  EXPECT_EQ(read.recorded[1].batch, 64);
}

}  // namespace
}  // namespace elinvar
