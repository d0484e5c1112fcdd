#include "tools/training/memory_forecast.h"

#include <gtest/gtest.h>

namespace elinvar {
namespace {

constexpr int64_t kP = int64_t{64} << 20;  // bytes of parameters

// One parameter that is cut into 64 buckets of a chunk each.
MemoryNeeds needs() {
  return {.parameters = {{kP / 4}}, .slots = 2, .other_state = 1000, .rank_gradient = 3 * kP, .process = 500};
}

TEST(MemoryForecast, AWorkerAloneHoldsAll) {
  const MemoryForecast alone = forecast_memory(needs(), {}, {4}).at(0);
  EXPECT_EQ(alone.parameters, kP);
  EXPECT_EQ(alone.optimizer, 2 * kP);
  EXPECT_EQ(alone.snapshot, 3 * kP + 1000);
  // State, its copy, sums of two and of one rank gradient, and the last one.
  EXPECT_EQ(alone.peak, 3 * kP + 1000 + alone.snapshot + 500 + 2 * kP + 3 * kP);
}

TEST(MemoryForecast, ZeroDividesTheOptimizersState) {
  for (const int copies : {1, 2}) {
    const auto workers = forecast_memory(needs(), {.zero = 1, .copies = copies}, {1, 1, 1, 1});
    for (const MemoryForecast& w : workers) {
      EXPECT_EQ(w.parameters, kP);
      EXPECT_EQ(w.optimizer, 2 * kP * copies / 4);
    }
    EXPECT_LT(workers[0].peak, forecast_memory(needs(), {}, {1, 1, 1, 1})[0].peak);
  }
}

TEST(MemoryForecast, AWorkerWithoutVirtualRanksComputesNothing) {
  const auto workers = forecast_memory(needs(), {.zero = 1, .copies = 1}, {2, 0});
  EXPECT_EQ(workers[0].peak - workers[1].peak, kP + 3 * kP);
}

}  // namespace
}  // namespace elinvar
