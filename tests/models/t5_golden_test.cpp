// Compares small T5s with PyTorch in float64 (golden/make_t5.py).
#include <gtest/gtest.h>

#include "models/relative_position.h"
#include "tests/models/golden_network.h"
#include "tests/models/pair_inputs.h"
#include "tests/models/row_inputs.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

Spec small_t5(bool gated, int64_t shards = 1) {
  Spec made = spec_of("t5", {{"layers", int64_t{2}},
                             {"decoder_layers", int64_t{3}},
                             {"heads", int64_t{3}},
                             {"channels", int64_t{24}},
                             {"head_channels", int64_t{7}},
                             {"hidden", int64_t{40}},
                             {"buckets", int64_t{8}},
                             {"max_distance", int64_t{16}},
                             {"dropout", 0.0},
                             {"gated", gated},
                             {"tied_head", !gated}});
  if (shards > 1) made.settings["virtual_shards"] = {shards};
  return made;
}

void compare_t5(bool gated, int64_t shards) {
  compare_with_golden(gated ? "t5_gated" : "t5_relu", *build(small_t5(gated), pair_info(), 1),
                      *build(small_t5(gated, shards), pair_info(), 1), pair_inputs(), next_of_pairs());
}

TEST(T5Golden, OfReluAndATiedHead) { compare_t5(false, 1); }
TEST(T5Golden, OfReluAndATiedHeadInShards) { compare_t5(false, 3); }
TEST(T5Golden, OfAGateAndAHeadOfItsOwn) { compare_t5(true, 1); }
TEST(T5Golden, OfAGateAndAHeadOfItsOwnInShards) { compare_t5(true, 2); }

// What is beyond a source's length changes nothing, and neither do later tokens of the target.
TEST(T5, SeesTheSourceAndEarlierTokens) {
  const auto network = build(small_t5(false), pair_info(), 1);
  const auto logits = [&](const Inputs& inputs, int64_t row, int64_t begin, int64_t end) {
    const Tensor all = logits_of(*network, inputs);
    return digest(all.slice(0, row, row + 1).slice(1, begin, end).to_contiguous());
  };
  const auto changed = [](const Tensor& tokens, int64_t i) {
    Tensor other = tokens.clone();
    other.data<int32_t>()[i] = (other.data<int32_t>()[i] + 1) % 40;
    return other;
  };
  const Inputs pairs = pair_inputs();
  const Tensor &source = pairs.first, &target = pairs.further[0], &lengths = pairs.further[1];
  const Digest before = logits(pairs, 1, 0, 9);
  EXPECT_EQ(logits({changed(source, 12 + 5), {target, lengths}}, 1, 0, 9), before) << "the sixth of five tokens";
  EXPECT_NE(logits({changed(source, 12 + 4), {target, lengths}}, 1, 0, 9), before);
  const Inputs other{source, {changed(target, 9 + 4), lengths}};
  EXPECT_EQ(logits(other, 1, 0, 4), logits(pairs, 1, 0, 4));
  EXPECT_NE(logits(other, 1, 4, 5), logits(pairs, 1, 4, 5));
}

TEST(T5, BucketsOfRelativePositions) {
  const auto bucket = [](int64_t distance, bool both) { return relative_bucket(distance, both, 32, 128); };
  // Bounds where the logarithms of the paper's formula are whole numbers.
  EXPECT_EQ(bucket(0, true), 0);
  EXPECT_EQ(bucket(-7, true), 7);
  EXPECT_EQ(bucket(7, true), 23);
  EXPECT_EQ(bucket(-15, true), 9);
  EXPECT_EQ(bucket(-16, true), 10);
  EXPECT_EQ(bucket(63, true), 29);
  EXPECT_EQ(bucket(64, true), 30);
  EXPECT_EQ(bucket(1000000, true), 31);
  EXPECT_EQ(bucket(1, false), 0) << "a later key";
  EXPECT_EQ(bucket(-15, false), 15);
  EXPECT_EQ(bucket(-64, false), 26);
  EXPECT_EQ(bucket(-128, false), 31);
}

TEST(T5, WhatDoesNotFitIsNamed) {
  const auto network = build(small_t5(false), pair_info(), 1);
  EXPECT_NE(test::message_of<UsageError>([&] { logits_of(*network, pair_inputs().first); }).find("got 1 inputs"),
            std::string::npos);
  const auto refusal = [](const Spec& made, const InputInfo& info) {
    return test::message_of<UsageError>([&] { build(made, info, 1); });
  };
  InputInfo info = pair_info();
  info.further[0].symbols = {41};
  EXPECT_NE(refusal(small_t5(false), info).find("one vocabulary for sources and targets"), std::string::npos);
  info.further.pop_back();
  EXPECT_NE(refusal(small_t5(false), info).find("takes pairs of texts"), std::string::npos);
  Spec near = small_t5(false);
  near.settings["max_distance"] = {int64_t{4}};
  EXPECT_NE(refusal(near, pair_info()).find("= 4 must be more than half of buckets = 8"), std::string::npos);
}

}  // namespace
}  // namespace elinvar
