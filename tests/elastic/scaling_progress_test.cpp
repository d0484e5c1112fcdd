#include "elastic/protocol/scaling_progress.h"

#include <gtest/gtest.h>

#include "tests/elastic/member_parts.h"

namespace elinvar {
namespace {

using test::MemberParts;

const ScalingOptions kAdaptive{.batch = 64, .batch_max = 512, .ramp_steps = 10, .goal = 1000};

TEST(ScalingProgress, ExactScalingSettlesNothing) {
  MemberParts at;
  at.position.generation->scaling = GenerationScaling{.batch = 128};
  ScalingProgress scaling({});
  scaling.settle(at.position);
  EXPECT_FALSE(scaling.adaptive());
  EXPECT_FALSE(scaling.certain());
  EXPECT_FALSE(scaling.goal_reached());
}

TEST(ScalingProgress, TheBatchOfAGenerationBeginsWithItsFirstStep) {
  MemberParts at(2, 0, /*first_step=*/5);
  at.position.generation->scaling = GenerationScaling{.batch = 128};
  ScalingProgress scaling(kAdaptive);
  scaling.set_made({.samples = 320, .batch = 64});
  EXPECT_EQ(scaling.current().batch, 64) << "not known yet";
  scaling.settle(at.position);
  ASSERT_TRUE(scaling.certain());
  EXPECT_EQ(*scaling.certain(), (ScalingState{.samples = 320, .batch = 128, .since = 5, .from = 1}));
  EXPECT_EQ(scaling.made().batch, 64) << "that of the state";

  // A step that has begun keeps its scaling state.
  at.position.generation->scaling->batch = 256;
  scaling.settle(at.position);
  EXPECT_EQ(scaling.current().batch, 128);
  scaling.forget_current();
  scaling.settle(at.position);
  EXPECT_EQ(scaling.current().batch, 256);
}

TEST(ScalingProgress, ASettledStateOfTheRecordWinsAndRecordedChangesFollow) {
  MemberParts at(2, 0, 5);
  const ScalingState given{.samples = 300, .batch = 96, .since = 2, .from = 1.25};
  at.position.generation->scaling = GenerationScaling{.batch = 128, .scaling_state = given, .recorded = {{6, 64}}};
  ScalingProgress scaling(kAdaptive);
  scaling.settle(at.position);
  EXPECT_EQ(scaling.current(), given);
  scaling.set_made(given);
  scaling.forget_current();
  at.position.completed = 6;
  scaling.settle(at.position);
  EXPECT_EQ(scaling.current().batch, 64);
  EXPECT_EQ(scaling.current().since, 6);
}

TEST(ScalingProgress, NothingIsSettledBeforeTheGenerationBegins) {
  MemberParts at(2, 0, 5);
  at.position.generation->scaling = GenerationScaling{.batch = 128};
  at.position.completed = 4;
  ScalingProgress scaling(kAdaptive);
  scaling.settle(at.position);
  EXPECT_FALSE(scaling.certain());
  scaling.set_made({.samples = 999, .batch = 64});
  EXPECT_FALSE(scaling.goal_reached());
  scaling.set_made({.samples = 1000, .batch = 64});
  EXPECT_TRUE(scaling.goal_reached());
}

}  // namespace
}  // namespace elinvar
