#include "nn/running_statistics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tensor/reduction_tree.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

Tensor row(std::vector<float> values) {
  const auto n = static_cast<int64_t>(values.size());
  return Tensor::from(values, {n});
}

// Rank 2 of four had no samples.
TEST(RunningStatistics, FollowTheWrittenExpressions) {
  const auto mean = std::make_shared<Buffer>(Buffer{"running_mean", row({0.5f, -1.0f})});
  const auto var = std::make_shared<Buffer>(Buffer{"running_var", row({1.0f, 2.0f})});
  std::vector<Statistic> statistics;
  TreeReducer reducer(4);
  for (int k = 0; k < 3; ++k) {
    const float f = static_cast<float>(k);
    statistics = {{mean, var, 0.1, {row({0.1f + f, 0.7f * f}), row({0.3f * f, 1.1f}), 8}}};
    if (k == 2) reducer.add(2, {});
    reducer.add(k < 2 ? k : 3, batch_statistics_of(statistics));
  }
  update_running_statistics(statistics, reducer.take_root(), 3);
  const float one_minus = static_cast<float>(1.0 - 0.1), ratio = 8.0f / 7.0f;
  const auto updated = [&](float old, float a, float b, float c) {
    return std::fma(0.1f, ((a + b) + c) / 3.0f, one_minus * old);
  };
  EXPECT_EQ(mean->value.data<float>()[0], updated(0.5f, 0.1f, 1.1f, 2.1f));
  EXPECT_EQ(mean->value.data<float>()[1], updated(-1.0f, 0.0f, 0.7f * 1.0f, 0.7f * 2.0f));
  EXPECT_EQ(var->value.data<float>()[0], updated(1.0f, 0.0f, 0.3f * ratio, (0.3f * 2.0f) * ratio));
  EXPECT_EQ(var->value.data<float>()[1], updated(2.0f, 1.1f * ratio, 1.1f * ratio, 1.1f * ratio));
}

TEST(RunningStatistics, ASingleRowHasNoUnbiasedVariance) {
  const auto mean = std::make_shared<Buffer>(Buffer{"running_mean", row({0.0f})});
  const auto var = std::make_shared<Buffer>(Buffer{"running_var", row({1.0f})});
  const std::vector<Statistic> statistics{{mean, var, 0.5, {row({2.0f}), row({0.0f}), 1}}};
  update_running_statistics(statistics, batch_statistics_of(statistics), 1);
  EXPECT_EQ(mean->value.data<float>()[0], 1.0f);
  EXPECT_EQ(var->value.data<float>()[0], 0.5f);
}

TEST(RunningStatistics, RefuseSumsOfOtherBatchNorms) {
  const auto buffer = std::make_shared<Buffer>(Buffer{"b", row({0.0f})});
  const Statistic s{buffer, buffer, 0.1, {row({1.0f}), row({1.0f}), 2}};
  const std::vector<Statistic> one{s};
  EXPECT_THROW(update_running_statistics({s, s}, batch_statistics_of(one), 1), UsageError);
  EXPECT_THROW(update_running_statistics(one, std::vector<Tensor>{row({1.0f})}, 1), UsageError);
  EXPECT_THROW(update_running_statistics(one, batch_statistics_of(one), 0), UsageError);
}

}  // namespace
}  // namespace elinvar
