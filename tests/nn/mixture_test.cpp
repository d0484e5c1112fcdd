// Capacities of experts, and the numbers that validation reports of them.
#include "nn/mixture.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

TEST(Mixture, Capacity) {
  const auto capacity = [](double factor, int64_t k, int64_t experts, int64_t tokens) {
    return expert_capacity({.experts = experts, .experts_per_token = k, .capacity_factor = factor}, tokens);
  };
  EXPECT_EQ(capacity(1.25, 2, 8, 64), 20);
  EXPECT_EQ(capacity(1.0, 1, 3, 10), 4);
  EXPECT_EQ(capacity(1e-3, 1, 64, 10), 1);
  EXPECT_EQ(capacity(4.0, 2, 8, 64), 64) << "none needs more than one row for each token";
  EXPECT_EQ(capacity(1e6, 2, 8, int64_t{1} << 30), int64_t{1} << 30);
}

TEST(ExpertLoads, AddUpAndBecomeMetrics) {
  std::vector<ExpertLoad> loads;
  add_loads(loads, {{{3, 1, 0, 0}, 1}, {{2, 2}, 0}});
  add_loads(loads, {{{1, 3, 2, 2}, 0}, {{1, 3}, 1}});
  add_loads(loads, {});
  const auto metrics = metrics_of(loads);
  EXPECT_EQ(metrics.at("expert_load_least"), 2 / 3.0);
  EXPECT_EQ(metrics.at("expert_load_most"), 4 / 3.0);
  EXPECT_EQ(metrics.at("expert_choices_dropped"), 0.1);
  EXPECT_TRUE(metrics_of({}).empty());
  EXPECT_NE(test::message_of<UsageError>([&] {
              add_loads(loads, {{{1}, 0}});
            }).find("2 mixtures expected, got 1"),
            std::string::npos);
}

}  // namespace
}  // namespace elinvar
