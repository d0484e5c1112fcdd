// Decoding one more token gives the same bits with a cache of keys and values as without; and sampling of the token.
#include "nn/decoder.h"

#include <gtest/gtest.h>

#include <set>

#include "data/utf8.h"
#include "autograd/precision.h"
#include "models/build.h"
#include "nn/sampling.h"
#include "tensor/base/check.h"
#include "tensor/isa.h"
#include "tests/support/bits.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

using test::same_bits;

constexpr int64_t kVocabulary = 131;

std::unique_ptr<Network> network_of(const std::string& kind, std::map<std::string, Value> settings, int64_t context) {
  Spec spec{.kind = kind};
  for (auto& [name, value] : settings) spec.settings[name] = {std::move(value)};
  return build(spec, {.sample = {context}, .classes = kVocabulary, .dtype = DType::i32}, 5);
}

std::unique_ptr<Network> gpt(int64_t context) {
  return network_of("gpt", {{"layers", int64_t{2}}, {"heads", int64_t{3}}, {"channels", int64_t{48}}}, context);
}
std::unique_ptr<Network> gpt_of_experts(int64_t context) {
  return network_of("gpt",
                    {{"layers", int64_t{2}}, {"heads", int64_t{3}}, {"channels", int64_t{48}}, {"experts", int64_t{4}}},
                    context);
}
std::unique_ptr<Network> llama(int64_t context) {
  return network_of(
      "llama", {{"layers", int64_t{2}}, {"heads", int64_t{4}}, {"kv_heads", int64_t{2}}, {"channels", int64_t{64}}},
      context);
}
std::unique_ptr<Network> llama_of_experts(int64_t context) {
  return network_of("llama",
                    {{"layers", int64_t{2}}, {"heads", int64_t{4}}, {"channels", int64_t{64}}, {"experts", int64_t{4}}},
                    context);
}
std::unique_ptr<Network> gpt_in_shards(int64_t context) {
  return network_of(
      "gpt", {{"layers", int64_t{2}}, {"heads", int64_t{3}}, {"channels", int64_t{48}}, {"virtual_shards", int64_t{2}}},
      context);
}
std::unique_ptr<Network> llama_in_shards(int64_t context) {
  return network_of("llama",
                    {{"layers", int64_t{2}},
                     {"heads", int64_t{4}},
                     {"kv_heads", int64_t{2}},
                     {"channels", int64_t{64}},
                     {"virtual_shards", int64_t{2}}},
                    context);
}

// A T5 as a language model of the targets of one source.
class OfOneSource final : public Network {
 public:
  OfOneSource(int64_t context, std::map<std::string, Value> settings) {
    Spec spec{.kind = "t5"};
    for (auto& [name, value] : settings) spec.settings[name] = {std::move(value)};
    network_ = build(spec,
                     {.sample = {kSource},
                      .classes = kVocabulary,
                      .dtype = DType::i32,
                      .symbols = {kVocabulary},
                      .further = {{{context}, DType::i32, {kVocabulary}}, {{1}, DType::i32, {kSource + 1}}}},
                     5);
  }
  Var forward(const Tensor& targets, Context& context) const override {
    const int64_t texts = targets.dim(0);
    std::vector<int32_t> sources;
    for (int64_t i = 0; i < texts * kSource; ++i)
      sources.push_back(static_cast<int32_t>(i % kSource * 13 % kVocabulary));
    context.inputs = {targets, Tensor::full({texts, 1}, 7, DType::i32)};
    return network_->forward(Tensor::from(sources, {texts, kSource}), context);
  }
  bool continues() const override { return network_->continues(); }

 private:
  static constexpr int64_t kSource = 9;  // tokens, of which the last two do not count
  std::unique_ptr<Network> network_;
};

std::unique_ptr<Network> t5(int64_t context) {
  return std::make_unique<OfOneSource>(
      context, std::map<std::string, Value>{
                   {"layers", int64_t{2}}, {"heads", int64_t{2}}, {"channels", int64_t{32}}, {"tied_head", false}});
}
std::unique_ptr<Network> t5_in_shards(int64_t context) {
  return std::make_unique<OfOneSource>(context, std::map<std::string, Value>{{"layers", int64_t{2}},
                                                                             {"heads", int64_t{3}},
                                                                             {"channels", int64_t{48}},
                                                                             {"gated", true},
                                                                             {"virtual_shards", int64_t{2}}});
}

std::vector<int32_t> text(int64_t tokens) {
  std::vector<int32_t> all;
  for (int64_t i = 0; i < tokens; ++i) all.push_back(static_cast<int32_t>((i * i + 7 * i) % kVocabulary));
  return all;
}

// Returns the logits of each token from one pass over all of them.
Tensor logits_of_all(const Network& network, const std::vector<int32_t>& tokens) {
  const NoGrad constant;
  Context context;
  return network.forward(Tensor::from(tokens, {1, static_cast<int64_t>(tokens.size())}), context).value().select(0, 0);
}

class Decoding : public testing::TestWithParam<std::unique_ptr<Network> (*)(int64_t)> {};

// Longer than a block of queries and a chunk of a sum over keys, so that a token's row is computed together with
// others. With exact products T5 has no cache, because they round the keys and values of a pass together, and its bits
// are those of a pass that ends with the token.
TEST_P(Decoding, EveryTokenHasTheBitsOfAPassOverAll) {
  constexpr int64_t kLength = 530;
  const auto network = GetParam()(kLength);
  const std::vector<int32_t> tokens = text(kLength);
  const Isa before = current_isa();
  std::vector<std::pair<Isa, Precision>> kinds{{available_isas().back(), Precision::exact}};
  for (const Isa isa : available_isas()) kinds.emplace_back(isa, Precision::portable);
  for (const auto& [isa, precision] : kinds) {
    set_isa(isa);
    const PrecisionScope products(precision);
    const Tensor all = logits_of_all(*network, tokens);
    const bool together = precision == Precision::exact && dynamic_cast<const OfOneSource*>(network.get());
    const auto expected = [&](size_t count) {
      const Tensor logits = together ? logits_of_all(*network, {tokens.begin(), tokens.begin() + count}) : all;
      return logits.select(0, static_cast<int64_t>(count) - 1);
    };
    Decoder decoder(*network, kLength);
    size_t n = 1;
    for (const size_t step : {1u, 1u, 3u, 60u, 1u, 62u, 200u, 1u, 183u, 1u, 1u, 1u, 14u}) {  // tokens per call
      n += step;
      EXPECT_TRUE(same_bits(decoder.logits(std::span(tokens).first(n)), expected(n)))
          << n << " tokens, " << name_of(isa) << ", " << name_of(precision);
    }
    EXPECT_EQ(n, tokens.size());
  }
  set_isa(before);
}

TEST_P(Decoding, BeyondTheContextAndBackTheCacheChangesNothing) {
  const auto network = GetParam()(12);
  Decoder cached(*network, 12), plain(*network, 12, /*cached=*/false);
  std::vector<int32_t> tokens = text(50);
  const auto expect_same = [&](size_t n) {
    const std::span<const int32_t> first = std::span(tokens).first(n);
    EXPECT_TRUE(same_bits(cached.logits(first), plain.logits(first))) << n << " tokens";
  };
  for (size_t n = 1; n <= tokens.size(); ++n) expect_same(n);
  for (const size_t n : {50u, 20u, 7u, 7u, 8u}) expect_same(n);
  tokens[5] = 1;  // another text with the same beginning
  expect_same(8);
  // The visible part begins again here, so earlier tokens do not count.
  const std::vector<int32_t> end(tokens.begin() + Decoder::first_seen(40, 12), tokens.begin() + 40);
  EXPECT_TRUE(same_bits(cached.logits(std::span(tokens).first(40)), plain.logits(end)));
}

TEST_P(Decoding, SeveralTextsAtOnceHaveTheBitsOfEach) {
  const auto network = GetParam()(16);
  const std::vector<int32_t> tokens = text(8);
  std::vector<int32_t> both = tokens;
  for (const int32_t token : tokens) both.push_back((token + 11) % kVocabulary);
  AttentionCache cache(16);
  Context forward{.cache = &cache};
  const NoGrad constant;
  (void)network->forward(Tensor::from(both, {2, 8}).slice(1, 0, 5).to_contiguous(), forward);
  const Tensor logits = network->forward(Tensor::from(both, {2, 8}).slice(1, 5, 8).to_contiguous(), forward).value();
  EXPECT_EQ(logits.shape(), (Shape{2, 1, kVocabulary}));
  EXPECT_TRUE(same_bits(logits.select(0, 0).select(0, 0), logits_of_all(*network, tokens).select(0, 7)));
}

INSTANTIATE_TEST_SUITE_P(Networks, Decoding,
                         testing::Values(gpt, gpt_of_experts, llama, llama_of_experts, gpt_in_shards, llama_in_shards,
                                         t5, t5_in_shards));

TEST(Decoder, ANetworkWithoutACacheIsComputedWhole) {
  Spec spec{.kind = "layers"};
  spec.lists["layer"] = {{.kind = "embedding", .settings = {{"channels", {int64_t{16}}}}},
                         {.kind = "attention", .settings = {{"heads", {int64_t{2}}}}},
                         {.kind = "linear"}};
  const auto network = build(spec, {.sample = {10}, .classes = kVocabulary, .dtype = DType::i32}, 5);
  EXPECT_FALSE(network->continues());
  Decoder decoder(*network, 10);
  const std::vector<int32_t> tokens = text(9);
  for (const size_t n : {4u, 9u})
    EXPECT_TRUE(same_bits(decoder.logits(std::span(tokens).first(n)),
                          logits_of_all(*network, tokens).select(0, static_cast<int64_t>(n) - 1)));
}

TEST(Decoder, SeesAtLeastHalfOfTheContextAndNeverMore) {
  for (const int64_t context : {1, 2, 5, 12})
    for (int64_t n = 1; n < 60; ++n) {
      const int64_t seen = n - Decoder::first_seen(n, context);
      EXPECT_LE(seen, context);
      EXPECT_GE(seen, std::min(n, (context + 1) / 2));
    }
}

// Keys of two precisions are never mixed: the bits remain those without a cache.
TEST(Decoder, BeginsAnewWithAnotherPrecision) {
  const auto network = gpt(16);
  Decoder cached(*network, 16), plain(*network, 16, /*cached=*/false);
  int64_t length = 3;
  for (const Precision precision : {Precision::portable, Precision::exact, Precision::portable}) {
    const PrecisionScope scope(precision);
    for (int i = 0; i < 2; ++i, ++length)
      EXPECT_EQ(digest(cached.logits(text(length))), digest(plain.logits(text(length))))
          << name_of(precision) << ' ' << length;
  }

  AttentionCache cache(16);
  Context forward{.cache = &cache};
  const NoGrad constant;
  (void)network->forward(Tensor::from(text(3), {1, 3}), forward);
  const PrecisionScope exact(Precision::exact);
  EXPECT_EQ(
      test::message_of<UsageError>([&] {
        network->forward(Tensor::from(text(3), {1, 3}), forward);
      }),
      "[attention cache] it has tokens of portable products, which exact ones cannot follow; keep(0) begins anew");
  cache.keep(0);
  EXPECT_NO_THROW(network->forward(Tensor::from(text(3), {1, 3}), forward));
}

TEST(AttentionCache, RefusesWhatItCannotHold) {
  const auto network = gpt(8);
  AttentionCache cache(4);
  Context forward{.cache = &cache};
  const Tensor input = Tensor::from(text(3), {1, 3});
  EXPECT_NE(test::message_of<UsageError>([&] { network->forward(input, forward); }).find("no gradient"),
            std::string::npos);
  const NoGrad constant;
  (void)network->forward(input, forward);
  EXPECT_NE(test::message_of<UsageError>([&] { network->forward(input, forward); }).find("beyond the 4"),
            std::string::npos);
  EXPECT_THROW(cache.keep(4), UsageError);
  cache.keep(1);
  EXPECT_NO_THROW(network->forward(input, forward));
  EXPECT_EQ(cache.length(), 4);
}

Tensor logits(std::vector<float> values) { return Tensor::from(values, {static_cast<int64_t>(values.size())}); }

// Returns the tokens that can be drawn.
std::set<int32_t> possible(const Tensor& z, const Sampling& sampling, std::span<const int32_t> seen = {}) {
  std::set<int32_t> found;
  for (int i = 0; i < 4096; ++i) found.insert(draw(z, seen, sampling, static_cast<float>(i) / 4096));
  return found;
}

TEST(Sampling, DrawsByTheShares) {
  const Tensor z = logits({0.0f, std::log(2.0f), std::log(5.0f)});  // 1/8, 2/8, 5/8
  std::map<int32_t, int> counts;
  for (int i = 0; i < 800; ++i) ++counts[draw(z, {}, {}, (static_cast<float>(i) + 0.5f) / 800)];
  EXPECT_EQ(counts, (std::map<int32_t, int>{{0, 100}, {1, 200}, {2, 500}}));
  counts.clear();  // the squares of the shares are 1, 4, 25
  for (int i = 0; i < 300; ++i) ++counts[draw(z, {}, {.temperature = 0.5}, (static_cast<float>(i) + 0.5f) / 300)];
  EXPECT_EQ(counts, (std::map<int32_t, int>{{0, 10}, {1, 40}, {2, 250}}));
}

TEST(Sampling, LimitsTheChoice) {
  const Tensor z = logits({1.0f, 3.0f, 2.0f, 3.0f, -4.0f});
  using Set = std::set<int32_t>;
  EXPECT_EQ(possible(z, {}), (Set{0, 1, 2, 3, 4}));
  EXPECT_EQ(possible(z, {.temperature = 0}), (Set{1})) << "of equals the lower";
  EXPECT_EQ(possible(z, {.top_k = 1}), (Set{1}));
  EXPECT_EQ(possible(z, {.top_k = 3}), (Set{1, 2, 3}));
  EXPECT_EQ(possible(z, {.top_k = 100}), (Set{0, 1, 2, 3, 4}));
  EXPECT_EQ(possible(z, {.top_p = 0.0}), (Set{1}));  // shares: .05 .40 .15 .40 and hardly any
  EXPECT_EQ(possible(z, {.top_p = 0.5}), (Set{1, 3}));
  EXPECT_EQ(possible(z, {.top_p = 0.9}), (Set{1, 2, 3}));
  EXPECT_EQ(possible(z, {.top_k = 3, .top_p = 0.8}), (Set{1, 3})) << "of the three that are left";
}

TEST(Sampling, TokensThatAreSeenBecomeLessLikely) {
  const Tensor z = logits({4.0f, 3.0f, -1.0f, -1.5f});
  const std::vector<int32_t> seen = {0, 2, 2};
  EXPECT_EQ(draw(z, seen, {.temperature = 0}, 0.0f), 0);
  EXPECT_EQ(draw(z, seen, {.repetition_penalty = 2.0, .temperature = 0}, 0.0f), 1);
  const Tensor negative = logits({-5.0f, -6.0f, -1.0f, -1.5f});
  EXPECT_EQ(draw(negative, seen, {.repetition_penalty = 2.0, .temperature = 0}, 0.0f), 3) << "-1 became -2";
}

TEST(Utf8, TellsACharacterThatIsNotWholeYet) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";  // of 1, 2, 3 and 4 bytes
  const std::vector<size_t> unfinished = {0, 0, 1, 0, 1, 2, 0, 1, 2, 3, 0};
  for (size_t n = 0; n <= text.size(); ++n)
    EXPECT_EQ(unfinished_bytes(std::string_view(text).substr(0, n)), unfinished[n]) << n;
  EXPECT_EQ(unfinished_bytes("\xFF"), 0u);
  EXPECT_EQ(unfinished_bytes("\x80\x80\x80\x80"), 0u) << "begins no character";
  EXPECT_EQ(unfinished_bytes("a\xC1"), 0u) << "an overlong form";
}

}  // namespace
}  // namespace elinvar
