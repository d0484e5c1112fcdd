#include "tensor/base/spelling.h"

#include <gtest/gtest.h>

namespace elinvar {
namespace {

const std::vector<std::string> kNames = {"momentum", "weight_decay", "lr", "nesterov"};

TEST(Spelling, DistanceCountsEdits) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("lr", "rl"), 1);
  EXPECT_EQ(edit_distance("momentum", "momentum"), 0);
}

TEST(Spelling, FindsTheNearest) {
  EXPECT_EQ(nearest_spelling("momentun", kNames), "momentum");
  EXPECT_EQ(nearest_spelling("Weight-Decay", kNames), "weight_decay");
  EXPECT_EQ(nearest_spelling("rl", kNames), "lr");
  EXPECT_EQ(nearest_spelling("xy", kNames), "");
  const std::vector<std::string> kinds = {"mlp", "gpt", "sgd"};
  EXPECT_EQ(nearest_spelling("gtp", kinds), "gpt");
  EXPECT_EQ(nearest_spelling("vit", kinds), "");
  EXPECT_EQ(nearest_spelling("batch_size", kNames), "");
}

TEST(Spelling, HintsAtOneOrListsAll) {
  EXPECT_EQ(spelling_hint("nestrov", kNames), "; did you mean 'nesterov'?");
  EXPECT_EQ(spelling_hint("batch_size", kNames), "; valid are momentum, weight_decay, lr, nesterov");
  EXPECT_EQ(spelling_hint("anything", {}), "");
}

}  // namespace
}  // namespace elinvar
