// Compares small BERTs with PyTorch in float64 (golden/make_bert.py).
#include <gtest/gtest.h>

#include <cmath>

#include "tensor/safetensors.h"
#include "tests/models/hashed_inputs.h"
#include "tests/models/row_inputs.h"
#include "tests/places.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

constexpr double kBertTolerance = 2e-5;  // roundings to float32 over ten steps, as in golden_test.cpp

// Returns the largest difference, relative to the largest expected magnitude.
double bert_difference(const Tensor& given, const Tensor& expected) {
  EXPECT_EQ(given.shape(), expected.shape());
  double worst = 0, largest = 0;
  const Tensor got = given.to_contiguous();
  for (int64_t i = 0; i < got.numel(); ++i) {
    const double a = got.data<float>()[i], b = expected.data<float>()[i];
    worst = a == a ? std::max(worst, std::abs(a - b)) : INFINITY;
    largest = std::max(largest, std::abs(b));
  }
  return worst / largest;
}

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

Tensor logits_of_bert(const Network& network, const Inputs& inputs) { return predict(network, std::span(&inputs, 1)); }

void compare_bert(const BertCase& c, int64_t shards) {
  const StateDict golden =
      read_safetensors(std::string(ELINVAR_SOURCE_DIR "/tests/golden/") + c.name + ".safetensors").tensors;
  const auto whole = build(bert(c.head), c.info, 1), network = build(bert(c.head, 0, shards), c.info, 1);
  fill_initial(whole->parameters);
  network->parameters.load_whole(whole->parameters.state());
  EXPECT_LE(bert_difference(logits_of_bert(*network, c.inputs), golden.at("logits")), kBertTolerance);
  train_ten_steps(*network, {.kind = "adamw", .lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1}, c.inputs,
                  c.target, {}, [&](int64_t step, double loss, const std::vector<Tensor>& gradients) {
                    const double expected = golden.at("losses").data<float>()[step];
                    EXPECT_NEAR(loss, expected, kBertTolerance * expected) << "step " << step;
                    if (step > 0) return;
                    Parameters holder;
                    for (size_t i = 0; i < gradients.size(); ++i) {
                      holder.list.push_back(network->parameters.list[i]);
                      holder.list[i].var = Var(gradients[i]);
                    }
                    for (const auto& [name, got] : holder.whole_state()) {
                      // Adding a constant to every key changes no softmax: such gradients are rounding noise.
                      if (name.ends_with("key.bias")) {
                        for (int64_t k = 0; k < got.numel(); ++k)
                          EXPECT_LE(std::abs(got.data<float>()[k]), 1e-8) << name;
                        continue;
                      }
                      EXPECT_LE(bert_difference(got, golden.at("grad/" + name)), kBertTolerance) << name;
                    }
                  });
  EXPECT_LE(bert_difference(logits_of_bert(*network, c.inputs), golden.at("eval_logits")), 5 * kBertTolerance);
}

TEST(BertGolden, OfMaskedTokens) { compare_bert(masked_case(), 1); }
TEST(BertGolden, OfMaskedTokensInShards) { compare_bert(masked_case(), 3); }
TEST(BertGolden, OfTextsOfDifferentLengths) { compare_bert(pooled_case(), 1); }
TEST(BertGolden, OfTextsOfDifferentLengthsInShards) { compare_bert(pooled_case(), 2); }

// What is beyond a text's length changes nothing.
TEST(Bert, PaddingIsNotSeen) {
  const BertCase c = pooled_case();
  const auto network = build(bert("pooled"), c.info, 1);
  const Tensor before = logits_of_bert(*network, c.inputs);
  Inputs other(c.inputs.first.clone(), c.inputs.further);
  for (int64_t t = 5; t < 12; ++t) other.first.data<int32_t>()[12 + t] = 7;
  EXPECT_EQ(digest(logits_of_bert(*network, other)), digest(before));
  other.first.data<int32_t>()[12 + 4] = (other.first.data<int32_t>()[12 + 4] + 1) % 40;
  EXPECT_NE(digest(logits_of_bert(*network, other)), digest(before));
}

TEST(Bert, WhatDoesNotFitIsNamed) {
  BertCase c = pooled_case();
  const auto network = build(bert("pooled"), c.info, 1);
  c.inputs.further[0].data<int32_t>()[2] = 0;
  EXPECT_EQ(test::message_of<UsageError>([&] { logits_of_bert(*network, c.inputs); }),
            "[attention] length 0 of sequence 2 is not from 1 to 12");
  c.info.symbols = {4, 5};
  EXPECT_NE(
      test::message_of<UsageError>([&] { build(bert("pooled"), c.info, 1); }).find("one vocabulary, not 2 columns"),
      std::string::npos);
}

}  // namespace
}  // namespace elinvar
