#include "nn/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

TEST(Schedule, ConstantAndWarmUp) {
  const ScheduleConfig c{.kind = "constant", .warmup_steps = 4};
  EXPECT_EQ(learning_rate(c, 2.0, 10, 0), 0.5);
  EXPECT_EQ(learning_rate(c, 2.0, 10, 3), 2.0);
  EXPECT_EQ(learning_rate(c, 2.0, 10, 9), 2.0);
}

TEST(Schedule, CosineIsACosine) {
  const ScheduleConfig c{.kind = "cosine", .warmup_steps = 10, .min_ratio = 0.1};
  for (int64_t step = 10; step <= 1010; ++step) {
    // 2e-16: the schedule evaluates its cosine and products in another order.
    const double t = static_cast<double>(step - 10) / 1000.0;
    EXPECT_NEAR(learning_rate(c, 0.5, 1010, step), 0.5 * (0.1 + 0.9 * (1 + std::cos(std::numbers::pi * t)) / 2), 2e-16)
        << step;
  }
  EXPECT_EQ(learning_rate(c, 0.5, 1010, 10), 0.5);
  EXPECT_EQ(learning_rate(c, 0.5, 1010, 5000), 0.5 * 0.1);
}

TEST(Schedule, Linear) {
  const ScheduleConfig c{.kind = "linear", .min_ratio = 0.5};
  EXPECT_EQ(learning_rate(c, 4.0, 8, 0), 4.0);
  EXPECT_EQ(learning_rate(c, 4.0, 8, 4), 3.0);
  EXPECT_EQ(learning_rate(c, 4.0, 8, 8), 2.0);
}

TEST(Schedule, StepsAtMilestonesOrRegularly) {
  const ScheduleConfig at{.kind = "step", .milestones = {3, 6}, .gamma = 0.5};
  const ScheduleConfig every{.kind = "step", .min_ratio = 0.2, .every = 2, .gamma = 0.5};
  const double by_milestone[] = {1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25};
  const double regular[] = {1, 1, 0.5, 0.5, 0.25, 0.25, 0.2, 0.2};
  for (int64_t step = 0; step < 8; ++step) {
    EXPECT_EQ(learning_rate(at, 1.0, 8, step), by_milestone[step]) << step;
    EXPECT_EQ(learning_rate(every, 1.0, 8, step), regular[step]) << step;
  }
}

TEST(Schedule, OneCycleRisesAndFalls) {
  const ScheduleConfig c{.kind = "one_cycle", .min_ratio = 0.01, .rise = 0.25, .initial_ratio = 0.1};
  EXPECT_DOUBLE_EQ(learning_rate(c, 1.0, 400, 0), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(c, 1.0, 400, 50), 0.55);
  EXPECT_DOUBLE_EQ(learning_rate(c, 1.0, 400, 100), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(c, 1.0, 400, 250), 0.505);
  EXPECT_DOUBLE_EQ(learning_rate(c, 1.0, 400, 400), 0.01);
}

TEST(Schedule, WarmUpLeadsToTheFirstRate) {
  for (const std::string& kind : schedule_kinds()) {
    const ScheduleConfig c{.kind = kind, .warmup_steps = 5, .every = 100};
    EXPECT_DOUBLE_EQ(learning_rate(c, 1.0, 50, 4), learning_rate(c, 1.0, 50, 5)) << kind;
    EXPECT_DOUBLE_EQ(learning_rate(c, 1.0, 50, 0), learning_rate(c, 1.0, 50, 5) / 5) << kind;
  }
}

TEST(Schedule, RefusesWhatMakesNoSense) {
  EXPECT_THROW(check_schedule({.kind = "cosin"}, 10), UsageError);
  EXPECT_THROW(check_schedule({.warmup_steps = 11}, 10), UsageError);
  EXPECT_THROW(check_schedule({.kind = "step"}, 10), UsageError);
  EXPECT_THROW(check_schedule({.kind = "linear", .min_ratio = -0.1}, 10), UsageError);
  EXPECT_THROW(check_schedule({}, 0), UsageError);
  EXPECT_NO_THROW(check_schedule({}, 1));
}

}  // namespace
}  // namespace elinvar
