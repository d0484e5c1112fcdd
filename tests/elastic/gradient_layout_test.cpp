#include "elastic/protocol/gradient_layout.h"

#include <gtest/gtest.h>

namespace elinvar {
namespace {

TEST(GradientLayout, IsLearnedFromTheFirstRankGradientWithSamples) {
  GradientLayout layout(/*bucket_elements=*/3);
  EXPECT_FALSE(layout.learn({})) << "a virtual rank without samples has no tensors";
  EXPECT_FALSE(layout.known());
  EXPECT_EQ(layout.buckets(), nullptr);
  EXPECT_EQ(layout.bucket_count(), 0);
  const RankGradient gradient{.gradients = {Tensor::zeros({4}), Tensor::zeros({2})},
                              .batch_statistics = {Tensor::zeros({1})}};
  EXPECT_TRUE(layout.learn(gradient));
  EXPECT_FALSE(layout.learn({.gradients = {Tensor::zeros({9})}})) << "it is known";
  EXPECT_TRUE(layout.known());
  EXPECT_EQ(layout.gradients(), 2);
  EXPECT_EQ(layout.buckets()->shapes().size(), 3u);
  EXPECT_EQ(layout.bucket_count(), 3) << "the first tensor is cut";
  EXPECT_EQ(layout.whole_buckets().count(), 2);
}

}  // namespace
}  // namespace elinvar
