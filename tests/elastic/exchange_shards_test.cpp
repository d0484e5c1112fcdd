// The reduction of gradients whose sums only their keepers get (ZeRO).
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <set>

#include "elastic/protocol/exchange.h"
#include "tensor/digest_tree.h"
#include "tensor/ops/global_norm.h"

namespace elinvar {
namespace {

constexpr int kReducedVranks = 4, kGradients = 2;
constexpr int64_t kChunk = kDigestChunkBytes / static_cast<int64_t>(sizeof(float));

// Two gradients, of which the first spans two buckets and the second one, and a batch statistic in a third bucket.
const std::vector<Shape> kCutShapes = {{kChunk + 5000}, {3, 7}, {4}};
const Buckets kCutBuckets(kCutShapes, kChunk, BucketCuts{.multiple = kChunk, .groups = {0, 0, 1}});
constexpr int kSharded = 2;  // buckets

std::vector<Tensor> tensors_of_rank(int vrank) {
  std::vector<Tensor> values;
  for (const Shape& shape : kCutShapes) {
    Tensor x = Tensor::empty(shape);
    for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = static_cast<float>((i * 7 + vrank * 13) % 1000) / 37;
    values.push_back(x);
  }
  return values;
}

// Gradients are means over eight targets, and batch statistics are sums.
std::vector<Tensor> expected_sums() {
  TreeReducer reducer(kReducedVranks);
  for (int v = 0; v < kReducedVranks; ++v) reducer.add(v, tensors_of_rank(v));
  std::vector<Tensor> sums = reducer.take_root();
  for (size_t t = 0; t < kGradients; ++t)
    for (float& x : sums[t].span<float>()) x *= 1.0f / (2 * kReducedVranks);
  return sums;
}

// Reducers with one virtual rank each, or one with all, and the messages between them.
struct Reducers {
  explicit Reducers(int count, std::vector<std::vector<int>> keepers, std::optional<int> audited = {}) {
    std::vector<int> owners;  // the first keeper of each
    for (int b = 0; b < kCutBuckets.count(); ++b)
      owners.push_back(b < static_cast<int>(keepers.size()) ? keepers[static_cast<size_t>(b)][0] : b % count);
    for (int m = 0; m < count; ++m) {
      Exchange::Options options{.vranks = kReducedVranks,
                                .members = count,
                                .me = m,
                                .buckets = &kCutBuckets,
                                .gradients = kGradients,
                                .owners = owners,
                                .keepers = keepers,
                                .holds_back = [this, m] { return lacks[m]; }};
      if (audited)
        options.audit.emplace(
            SumAudit::Roles{
                .bucket = *audited, .owner = keepers[static_cast<size_t>(*audited)][0], .checkers = {}, .speakers = {}},
            m, std::vector<SumClaim>());
      exchanges.push_back(std::make_unique<Exchange>(std::move(options)));
    }
  }
  SendToMember send_from(int m) {
    return [this, m](int to, Payload payload) {
      if (const auto* result = payload.as<messages::BucketResult>()) results[result->bucket].insert(to);
      if (payload.as<messages::TrailerPart>()) parts.insert(m);
      mail.emplace_back(to, Message{.payload = std::move(payload)});
    };
  }
  void contribute(int m, bool with_samples = true) {
    const int each = kReducedVranks / static_cast<int>(exchanges.size());
    std::vector<Subtree> roots;
    messages::TrailerPart part{.member = m, .held = 1};
    for (int v = m * each; v < (m + 1) * each; ++v) {
      roots.push_back({v, v + 1, with_samples ? tensors_of_rank(v) : std::vector<Tensor>()});
      part.facts[v] = {.count = with_samples ? 2 : 0, .samples = with_samples};
    }
    exchanges[static_cast<size_t>(m)]->contribute(std::move(roots), part, {}, send_from(m));
  }
  void run() {
    for (bool any = true; any;) {
      any = false;
      while (!mail.empty()) {
        const auto [to, message] = std::move(mail.front());
        mail.pop_front();
        EXPECT_EQ(exchanges[static_cast<size_t>(to)]->receive(message, send_from(to)), "");
      }
      for (size_t m = 0; m < exchanges.size(); ++m) {
        any = exchanges[m]->work(send_from(static_cast<int>(m))) || any;
        any = exchanges[m]->send_part(send_from(static_cast<int>(m))) || any;
      }
      any = any || !mail.empty();
    }
  }

  std::vector<std::unique_ptr<Exchange>> exchanges;
  std::deque<std::pair<int, Message>> mail;
  std::map<int, std::set<int>> results;  // by bucket: the members to which its sum was sent
  std::set<int> parts;                   // the members that have sent the first one their part
  std::map<int, std::string> lacks;
};

std::set<int> numbers_of(const std::map<int, std::vector<Tensor>>& sums) {
  std::set<int> numbers;
  for (const auto& [bucket, slices] : sums) numbers.insert(bucket);
  return numbers;
}

void expect_sums(const std::map<int, std::vector<Tensor>>& sums) {
  const std::vector<Tensor> whole = expected_sums();
  for (const auto& [bucket, slices] : sums) {
    const std::vector<Tensor> cut = kCutBuckets.cut(bucket, whole);
    ASSERT_EQ(slices.size(), cut.size());
    for (size_t i = 0; i < cut.size(); ++i)
      EXPECT_EQ(digest_of({slices[i]}), digest_of({cut[i]})) << "bucket " << bucket;
  }
}

template <class T>
std::vector<T> read_all(const Blob& blob) {
  std::vector<T> all(blob.bytes / sizeof(T));
  std::memcpy(all.data(), blob.data, blob.bytes);
  return all;
}

// The facts of all buckets together are those of whole gradients.
void expect_facts(const messages::Trailer& trailer) {
  std::vector<Tensor> gradients = expected_sums();
  gradients.resize(kGradients);
  std::vector<Digest> chunks, said;
  for (const TensorDigest& tensor : digest_tree(gradients))
    chunks.insert(chunks.end(), tensor.chunks.begin(), tensor.chunks.end());
  std::vector<double> squares;
  ASSERT_EQ(trailer.sums.size(), static_cast<size_t>(kSharded));
  for (int b = 0; b < kSharded; ++b) {
    const messages::SumFacts& facts = trailer.sums[static_cast<size_t>(b)];
    EXPECT_EQ(facts.bucket, b);
    for (const Digest& chunk : read_all<Digest>(facts.chunks)) said.push_back(chunk);
    for (const double x : read_all<double>(facts.squares)) squares.push_back(x);
  }
  EXPECT_EQ(said, chunks);
  EXPECT_EQ(squares, segment_sums(gradients));
}

TEST(ExchangeShards, SumsGoToTheirKeepersAlone) {
  ASSERT_EQ(kCutBuckets.count(), 3);
  ASSERT_EQ(kCutBuckets.below(kGradients), kSharded);
  Reducers at(4, {{2, 1}, {3, 2}});
  for (int m = 0; m < 4; ++m) at.contribute(m);
  at.run();
  EXPECT_EQ(at.results[0], std::set<int>{1}) << "member 2 owns it";
  EXPECT_EQ(at.results[1], std::set<int>{2});
  EXPECT_EQ(at.results[2], (std::set<int>{0, 1, 3})) << "batch statistics go to all";
  const std::vector<std::set<int>> kept = {{}, {0}, {0, 1}, {1}};
  for (int m = 0; m < 4; ++m) {
    Exchange& exchange = *at.exchanges[static_cast<size_t>(m)];
    ASSERT_TRUE(exchange.complete()) << exchange.missing();
    EXPECT_TRUE(exchange.promised());
    const auto sums = exchange.take_sums();
    EXPECT_EQ(numbers_of(sums), kept[static_cast<size_t>(m)]);
    expect_sums(sums);
    expect_facts(exchange.trailer());
    const std::vector<Tensor> values = exchange.values();
    EXPECT_FALSE(values.at(0).defined() || values.at(1).defined());
    EXPECT_EQ(digest_of({values.at(2)}), digest_of({expected_sums()[2]}));
  }
}

// All members compare an audited sum with what the checkers say, but only its keepers use it.
TEST(ExchangeShards, AnAuditedSumGoesToAll) {
  Reducers at(4, {{2, 1}, {3, 2}}, /*audited=*/0);
  for (int m = 0; m < 4; ++m) at.contribute(m);
  at.run();
  EXPECT_EQ(at.results[0], (std::set<int>{0, 1, 3}));
  EXPECT_EQ(at.results[1], std::set<int>{2});
  for (const auto& exchange : at.exchanges) {
    ASSERT_TRUE(exchange->complete()) << exchange->missing();
    EXPECT_EQ(exchange->audit()->received(), at.exchanges[2]->audit()->received());
  }
  EXPECT_TRUE(at.exchanges[0]->take_sums().empty());
  EXPECT_EQ(numbers_of(at.exchanges[1]->take_sums()), std::set<int>{0});
}

TEST(ExchangeShards, APartIsSentOnceSumsAndStateAreThere) {
  Reducers at(2, {{1, 0}, {1, 0}});
  at.lacks[1] = "the optimizer's state";
  at.contribute(1);
  at.run();
  EXPECT_TRUE(at.parts.empty()) << "its own sums are missing";
  EXPECT_FALSE(at.exchanges[1]->owes());
  at.contribute(0);
  at.run();
  EXPECT_TRUE(at.exchanges[0]->promised());
  EXPECT_TRUE(at.parts.empty());
  EXPECT_FALSE(at.exchanges[1]->promised());
  EXPECT_EQ(at.exchanges[1]->missing(), "the optimizer's state, the trailer");
  EXPECT_FALSE(at.exchanges[0]->complete());
  at.lacks[1] = "";
  at.run();
  EXPECT_EQ(at.parts, std::set<int>{1});
  for (const auto& exchange : at.exchanges) EXPECT_TRUE(exchange->complete()) << exchange->missing();
}

TEST(ExchangeShards, AMemberAloneKeepsAll) {
  Reducers at(1, {{0}, {0}});
  at.contribute(0);
  Exchange& exchange = *at.exchanges[0];
  ASSERT_TRUE(exchange.complete()) << exchange.missing();
  const auto sums = exchange.take_sums();
  EXPECT_EQ(numbers_of(sums), (std::set<int>{0, 1}));
  expect_sums(sums);
  expect_facts(exchange.trailer());
  const std::vector<Tensor> values = exchange.values();
  EXPECT_FALSE(values.at(0).defined());
  EXPECT_EQ(digest_of({values.at(2)}), digest_of({expected_sums()[2]}));
}

TEST(ExchangeShards, WithoutSamplesThereAreNoSums) {
  for (const int count : {1, 2}) {
    Reducers at(count, {{0}, {count - 1}});
    for (int m = 0; m < count; ++m) at.contribute(m, /*with_samples=*/false);
    at.run();
    Exchange& last = *at.exchanges.back();
    ASSERT_TRUE(last.complete()) << last.missing();
    EXPECT_EQ(last.trailer().sums.size(), 2u);
    const auto sums = last.take_sums();
    EXPECT_TRUE(sums.at(1).empty());
  }
}

TEST(ExchangeShards, AListenerGetsBatchStatisticsAndTheTrailer) {
  Reducers at(2, {{0}, {1}});
  for (int m = 0; m < 2; ++m) at.contribute(m);
  at.run();
  Exchange listener({.vranks = kReducedVranks,
                     .members = 0,
                     .me = -1,
                     .buckets = &kCutBuckets,
                     .gradients = kGradients,
                     .keepers = std::vector<std::vector<int>>(kSharded)});
  const SendToMember send = [](int, const Payload&) { FAIL() << "a listener sends nothing"; };
  EXPECT_TRUE(listener.listens());
  EXPECT_FALSE(listener.owes());
  EXPECT_NE(listener.receive({.payload = result_of(kCutBuckets, 0, expected_sums())}, send), "")
      << "its keepers get it";
  EXPECT_FALSE(listener.complete());
  EXPECT_EQ(listener.receive({.payload = result_of(kCutBuckets, 2, expected_sums())}, send), "");
  EXPECT_EQ(listener.receive({.payload = at.exchanges[0]->trailer()}, send), "");
  ASSERT_TRUE(listener.complete()) << listener.missing();
  EXPECT_TRUE(listener.take_sums().empty());
  EXPECT_EQ(digest_of({listener.values().at(2)}), digest_of({expected_sums()[2]}));
  expect_facts(listener.trailer());
}

}  // namespace
}  // namespace elinvar
