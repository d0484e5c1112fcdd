// Rank gradients that are contributed one by one (ZeRO's second stage).
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "elastic/protocol/exchange.h"
#include "tensor/ops/pointwise.h"

namespace elinvar {
namespace {

constexpr int kByRankVranks = 7;
const Buckets kByRankBuckets({{5}, {3}}, 4, BucketCuts{});

struct ByRank {
  std::vector<Exchange> members;
  std::vector<std::pair<int, Payload>> sent;  // messages on their way, with their receivers

  explicit ByRank(int n, std::optional<SumAudit::Roles> audit = {}) {
    for (int m = 0; m < n; ++m) {
      Exchange::Options options{
          .vranks = kByRankVranks, .members = n, .me = m, .buckets = &kByRankBuckets, .gradients = 2, .by_rank = true};
      for (int b = 0; b < kByRankBuckets.count(); ++b) options.keepers.push_back({b % n});
      if (audit) options.audit.emplace(*audit, m, std::vector<SumClaim>());
      members.emplace_back(std::move(options));
    }
  }
  SendToMember sender() {
    return [this](int to, Payload payload) { sent.emplace_back(to, std::move(payload)); };
  }
  std::string deliver(size_t i) {
    const auto [to, payload] = sent[i];
    sent.erase(sent.begin() + static_cast<std::ptrdiff_t>(i));
    return members[static_cast<size_t>(to)].receive(Message{.payload = payload}, sender());
  }
};

std::vector<Tensor> rank_values(int vrank) {
  if (vrank == 2) return {};  // it has no samples
  std::mt19937 random(static_cast<unsigned>(vrank));
  std::vector<Tensor> tensors = {Tensor::empty({5}), Tensor::empty({3})};
  for (Tensor& tensor : tensors)
    for (float& x : tensor.span<float>()) x = std::normal_distribution<float>()(random);
  return tensors;
}

void contribute_to(ByRank& job, int member, int vrank) {
  const std::vector<Tensor> values = rank_values(vrank);
  for (int b = 0; b < kByRankBuckets.count(); ++b)
    job.members[static_cast<size_t>(member)].contribute(b, vrank,
                                                        values.empty() ? values : kByRankBuckets.cut(b, values),
                                                        values.empty() ? 0 : 1 + vrank, job.sender());
}

std::vector<Tensor> root_of_all() {
  TreeReducer reducer(kByRankVranks);
  int64_t count = 0;
  for (int v = 0; v < kByRankVranks; ++v) {
    std::vector<Tensor> values = rank_values(v);
    count += values.empty() ? 0 : 1 + v;
    reducer.add(v, std::move(values));
  }
  std::vector<Tensor> root = reducer.take_root();
  for (Tensor& tensor : root) tensor = mul(tensor, 1.0 / static_cast<double>(count));
  return root;
}

void expect_sums_by_rank(ByRank& job) {
  const std::vector<Tensor> whole = root_of_all();
  size_t found = 0;
  for (Exchange& member : job.members)
    for (const auto& [bucket, slices] : member.take_sums()) {
      ++found;
      const std::vector<Tensor> cut = kByRankBuckets.cut(bucket, whole);
      for (size_t i = 0; i < cut.size(); ++i) {
        const auto x = slices[i].span<float>(), y = cut[i].span<float>();
        EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin(), y.end())) << "bucket " << bucket;
      }
    }
  EXPECT_EQ(found, static_cast<size_t>(kByRankBuckets.count()));
}

void finish_by_rank(ByRank& job) {
  for (size_t m = 0; m < job.members.size(); ++m)
    job.members[m].contribute(std::vector<Subtree>(), {.member = static_cast<int>(m)}, {}, job.sender());
  while (true) {
    bool worked = false;
    for (Exchange& member : job.members) {
      while (member.work(job.sender())) worked = true;
      worked |= member.send_part(job.sender());
    }
    if (job.sent.empty() && !worked) break;
    while (!job.sent.empty()) EXPECT_EQ(job.deliver(0), "");
  }
  for (const Exchange& member : job.members) EXPECT_TRUE(member.complete()) << member.missing();
}

TEST(ExchangeByRank, AnyOrderOfArrivalGivesTheBitsOfTheTree) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    std::mt19937 random(seed);
    const int n = 2 + static_cast<int>(seed % 2);
    ByRank job(n);
    std::vector<int> order(kByRankVranks);
    for (int v = 0; v < kByRankVranks; ++v) order[static_cast<size_t>(v)] = v;
    std::shuffle(order.begin(), order.end(), random);
    for (const int v : order) {
      contribute_to(job, static_cast<int>(random() % static_cast<unsigned>(n)), v);
      while (!job.sent.empty() && random() % 4 > 0) EXPECT_EQ(job.deliver(random() % job.sent.size()), "");
      for (Exchange& member : job.members)
        while (random() % 2 > 0 && member.work(job.sender())) {
        }
    }
    finish_by_rank(job);
    expect_sums_by_rank(job);
  }
}

TEST(ExchangeByRank, SiblingsAreAddedAtOnce) {
  ByRank job(2);
  Exchange& owner = job.members[0];
  contribute_to(job, 0, 4);
  EXPECT_FALSE(owner.work(job.sender())) << "there is nothing to add to";
  contribute_to(job, 0, 5);
  EXPECT_TRUE(owner.work(job.sender()));
  contribute_to(job, 0, 3);
  while (owner.work(job.sender())) {
  }
  contribute_to(job, 1, 6);
  while (!job.sent.empty()) EXPECT_EQ(job.deliver(0), "");
  EXPECT_TRUE(owner.work(job.sender())) << "4 to 5, and 6, make a node";
}

TEST(ExchangeByRank, NoneCountsTwice) {
  ByRank job(2);
  contribute_to(job, 0, 4);
  contribute_to(job, 0, 5);
  while (job.members[0].work(job.sender())) {
  }
  job.sent.clear();
  contribute_to(job, 1, 5);
  int refused = 0;
  while (!job.sent.empty()) refused += job.deliver(0) == "a rank gradient came twice";
  EXPECT_GT(refused, 0) << "also if it is added to others already";
}

TEST(ExchangeByRank, AnAuditedBucketKeepsItsInputs) {
  ByRank job(3, SumAudit::Roles{.bucket = 1, .owner = 1, .checkers = {2}, .speakers = {2}});
  for (int v = 0; v < kByRankVranks; ++v) contribute_to(job, v % 3, v);
  finish_by_rank(job);
  const std::vector<SumClaim>& claimed = job.members[1].audit()->said();
  ASSERT_EQ(claimed.size(), 1u);
  EXPECT_EQ(job.members[2].audit()->said(), claimed);
  EXPECT_TRUE(job.members[0].audit()->complete());
}

}  // namespace
}  // namespace elinvar
