// Compares a small LSTM with PyTorch in float64 (golden/make_lstm.py).
#include <gtest/gtest.h>

#include "tests/models/golden_network.h"

namespace elinvar {
namespace {

const InputInfo kText{.sample = {9}, .classes = 40, .dtype = DType::i32};

Spec lstm_spec() { return spec("lstm", {{"channels", int64_t{12}}, {"hidden", int64_t{20}}}); }

TEST(LstmGolden, OfALanguageModel) {
  const auto network = build(lstm_spec(), kText, 1);
  compare_with_golden("lstm", *network, *network, integers<int32_t>("input", {3, 9}, 40),
                      integers<int64_t>("target", {3, 9}, 40));
}

// The layer of a configuration is that of the language model.
TEST(Lstm, ALayerIsTheSame) {
  const auto network = build(lstm_spec(), kText, 1);
  Spec layers{.kind = "layers"};
  layers.lists["layer"] = {
      spec("embedding", {{"channels", int64_t{12}}, {"name", std::string("encoder")}}),
      spec("lstm", {{"hidden", int64_t{20}}, {"layers", int64_t{2}}, {"name", std::string("rnn")}}),
      spec("linear", {{"name", std::string("decoder")}})};
  const auto twin = build(layers, kText, 2);
  twin->parameters.load(network->parameters.state());
  const Inputs tokens = integers<int32_t>("input", {3, 9}, 40);
  EXPECT_EQ(digest(logits_of(*twin, tokens)), digest(logits_of(*network, tokens)));
}

// An output depends on no later token.
TEST(Lstm, SeesNoLaterToken) {
  const auto network = build(lstm_spec(), kText, 1);
  const Tensor tokens = integers<int32_t>("input", {1, 9}, 40);
  const Tensor whole = logits_of(*network, tokens), part = logits_of(*network, tokens.slice(1, 0, 5).to_contiguous());
  EXPECT_EQ(digest(whole.slice(1, 0, 5).to_contiguous()), digest(part));
}

TEST(Lstm, ATiedHeadNeedsEqualWidths) {
  Spec tied = lstm_spec();
  tied.settings["tied_head"] = {true};
  EXPECT_THROW(build(tied, kText, 1), UsageError);
  tied.settings["hidden"] = {int64_t{12}};
  EXPECT_EQ(build(tied, kText, 1)->parameters.count(), 40 * 12 + 2 * (2 * 48 * 12 + 2 * 48) + 40);
}

}  // namespace
}  // namespace elinvar
