// Parameters in virtual shards: how they are cut and joined, and what the optimiser and exemptions see.
#include "nn/cut.h"

#include <gtest/gtest.h>

#include "nn/initializers.h"
#include "nn/optimizer.h"
#include "tests/support/bits.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

using test::same_bits;

Tensor counted(const Shape& shape) {
  Tensor t = Tensor::empty(shape);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = static_cast<float>(i);
  return t;
}

TEST(Cut, HasThingsOfEveryGroup) {
  const Cut cut{.shards = 2, .things = 3, .groups = 2};  // two rows a thing
  const Tensor whole = counted({12, 1});
  EXPECT_TRUE(same_bits(cut.part_of(whole, 0), Tensor::from(std::vector<float>{0, 1, 6, 7}, {4, 1})));
  EXPECT_TRUE(same_bits(cut.part_of(whole, 1), Tensor::from(std::vector<float>{2, 3, 4, 5, 8, 9, 10, 11}, {8, 1})));
}

TEST(Cut, JoinsWhatItCuts) {
  for (const int dim : {0, 1})
    for (const int64_t groups : {1, 3})
      for (const int64_t things : {5, 8})
        for (const int shards : {1, 2, 3, 5}) {
          const Cut cut{.shards = shards, .things = things, .groups = groups, .dim = dim};
          const Tensor whole = counted(dim == 0 ? Shape{groups * things * 2, 7} : Shape{7, groups * things * 2});
          std::vector<Tensor> parts;
          int64_t elements = 0;
          for (int s = 0; s < shards; ++s) {
            parts.push_back(cut.part_of(whole, s));
            EXPECT_EQ(parts.back().shape(), cut.shape_of(whole.shape(), s));
            elements += parts.back().numel();
          }
          EXPECT_EQ(elements, whole.numel());
          EXPECT_TRUE(same_bits(cut.joined(parts), whole));
        }
}

TEST(Cut, JoinsNoOtherNumberOfShards) {
  const Cut cut{.shards = 3, .things = 5};
  const std::vector<Tensor> two = {cut.part_of(counted({5, 2}), 0), cut.part_of(counted({5, 2}), 1)};
  EXPECT_EQ(test::message_of<UsageError>([&] { cut.joined(two); }), "[cut] 3 shards expected, got 2");
}

struct OneWeight {
  Parameters parameters;
  explicit OneWeight(int shards) {
    const Scope scope(parameters, 3);
    scope.shards("weight", {64, 128}, init::normal(1.0), {.shards = shards, .things = 64});
    scope.parameter("bias", {64}, init::constant(0.0));
  }
};

TEST(Cut, ShardsAreNamedAndHaveTheInitialValuesOfTheWhole) {
  const OneWeight cut(2), whole(1);
  ASSERT_EQ(cut.parameters.list.size(), 3u);
  EXPECT_EQ(cut.parameters.list[1].name, "weight@1");
  EXPECT_EQ(cut.parameters.list[1].whole_name(), "weight");
  EXPECT_EQ(whole.parameters.list[0].name, "weight");
  EXPECT_EQ(digest(cut.parameters.whole_state()), digest(whole.parameters.state()));
}

TEST(Cut, ExemptionsNameTheWhole) {
  OneWeight cut(2);
  exempt_from_decay(cut.parameters, std::vector<std::string>{"weight"});
  EXPECT_FALSE(cut.parameters.list[0].decay);
  EXPECT_FALSE(cut.parameters.list[1].decay);
  EXPECT_TRUE(cut.parameters.list[2].decay);
}

// Both shards have 4096 elements, a piece of rule 19, so even the sums have the same bits.
TEST(Cut, TrustRatiosAreThoseOfTheWhole) {
  for (const char* kind : {"lars", "lamb"}) {
    OneWeight cut(2), whole(1);
    const OptimizerConfig config{.kind = kind, .lr = 0.1, .weight_decay = 0.1};
    const auto in_shards = make_optimizer(config, cut.parameters), at_once = make_optimizer(config, whole.parameters);
    for (int64_t step = 0; step < 3; ++step) {
      const Tensor gradient = counted({64, 128}), of_bias = counted({64});
      const Cut& how = cut.parameters.list[0].cut;
      at_once->step(whole.parameters, std::vector<Tensor>{gradient, of_bias}, 0.1, step);
      in_shards->step(cut.parameters, std::vector<Tensor>{how.part_of(gradient, 0), how.part_of(gradient, 1), of_bias},
                      0.1, step);
      EXPECT_EQ(digest(cut.parameters.whole_state()), digest(whole.parameters.state())) << kind;
    }
  }
}

}  // namespace
}  // namespace elinvar
