// Compares small BERTs with PyTorch in float64 (golden/make_bert.py).
#include <gtest/gtest.h>

#include "tests/models/golden_network.h"
#include "tests/models/row_inputs.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

struct BertCase {
  const char* name;
  std::string head;
  InputInfo info;
  Inputs inputs;
  Tensor target;
};

BertCase masked_case() {
  Tensor target = integers<int64_t>("target", {3, 12}, 40);
  const Tensor chosen = integers<int64_t>("chosen", {3, 12}, 3);
  for (int64_t i = 0; i < target.numel(); ++i)
    if (chosen.data<int64_t>()[i] != 0) target.data<int64_t>()[i] = -100;
  return {"bert_masked",
          "tokens",
          {.sample = {12}, .classes = 40, .dtype = DType::i32},
          integers<int32_t>("input", {3, 12}, 40),
          target};
}

BertCase pooled_case() {
  Tensor tokens = integers<int32_t>("input", {3, 12}, 40);
  for (int64_t i = 0; i < 3; ++i) tokens.data<int32_t>()[12 * i] = 40;
  return {"bert_pooled",
          "pooled",
          {.sample = {12}, .classes = 5, .dtype = DType::i32, .symbols = {41}, .further = {{{1}, DType::i32, {13}}}},
          Inputs(tokens, {Tensor::from(std::vector<int32_t>{12, 5, 1}, {3, 1})}),
          integers<int64_t>("target", {3}, 5)};
}

Spec bert(const std::string& head, double dropout = 0, int64_t shards = 1) {
  Spec spec = spec_of("bert", {{"layers", int64_t{2}},
                               {"heads", int64_t{3}},
                               {"channels", int64_t{24}},
                               {"hidden", int64_t{40}},
                               {"dropout", dropout},
                               {"head", head}});
  if (shards > 1) spec.settings["virtual_shards"] = {shards};
  return spec;
}

void compare_bert(const BertCase& c, int64_t shards) {
  // Adding a constant to every key changes no softmax: such gradients are rounding noise.
  const auto noise = [](const std::string& name) { return name.ends_with("key.bias"); };
  compare_with_golden(c.name, *build(bert(c.head), c.info, 1), *build(bert(c.head, 0, shards), c.info, 1), c.inputs,
                      c.target, noise);
}

TEST(BertGolden, OfMaskedTokens) { compare_bert(masked_case(), 1); }
TEST(BertGolden, OfMaskedTokensInShards) { compare_bert(masked_case(), 3); }
TEST(BertGolden, OfTextsOfDifferentLengths) { compare_bert(pooled_case(), 1); }
TEST(BertGolden, OfTextsOfDifferentLengthsInShards) { compare_bert(pooled_case(), 2); }

// What is beyond a text's length changes nothing.
TEST(Bert, PaddingIsNotSeen) {
  const BertCase c = pooled_case();
  const auto network = build(bert("pooled"), c.info, 1);
  const Tensor before = logits_of(*network, c.inputs);
  Inputs other(c.inputs.first.clone(), c.inputs.further);
  for (int64_t t = 5; t < 12; ++t) other.first.data<int32_t>()[12 + t] = 7;
  EXPECT_EQ(digest(logits_of(*network, other)), digest(before));
  other.first.data<int32_t>()[12 + 4] = (other.first.data<int32_t>()[12 + 4] + 1) % 40;
  EXPECT_NE(digest(logits_of(*network, other)), digest(before));
}

// Blocks that run again see the lengths, too.
TEST(Bert, RecomputedGradientsHaveTheSameBits) {
  const BertCase c = pooled_case();
  const auto network = build(bert("pooled", 0.1), c.info, 1);
  const auto gradients = [&](bool recompute) {
    StateDict all;
    const MicroBatchResult result =
        micro_batch_gradient(*network, c.inputs, Targets(c.target), {}, {.seed = 1}, recompute);
    for (size_t i = 0; i < result.gradients.size(); ++i) all.emplace(std::to_string(i), result.gradients[i]);
    return digest(all);
  };
  EXPECT_EQ(gradients(true), gradients(false));
}

TEST(Bert, WhatDoesNotFitIsNamed) {
  BertCase c = pooled_case();
  const auto network = build(bert("pooled"), c.info, 1);
  c.inputs.further[0].data<int32_t>()[2] = 0;
  EXPECT_EQ(test::message_of<UsageError>([&] { logits_of(*network, c.inputs); }),
            "[attention] length 0 of sequence 2 is not from 1 to 12");
  c.info.symbols = {4, 5};
  EXPECT_NE(
      test::message_of<UsageError>([&] { build(bert("pooled"), c.info, 1); }).find("one vocabulary, not 2 columns"),
      std::string::npos);
}

}  // namespace
}  // namespace elinvar
