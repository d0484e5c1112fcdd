// What each member of a model replica contributes.
#include "elastic/protocol/model_replica.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "tests/elastic/replica_parts.h"

namespace elinvar {
namespace {

using test::form_replicas;
using test::MemberParts;
using test::ReplicaMember;

// Returns the buckets, or tensors, below `count` for which this is so.
template <class Is>
std::vector<int> those(int count, Is is) {
  std::vector<int> found;
  for (int i = 0; i < count; ++i)
    if (is(i)) found.push_back(i);
  return found;
}

const Contributions& dealt(const ModelReplica& replica, const GradientLayout& layout) {
  return replica.contributions(*layout.buckets());
}

std::vector<int> buckets_of(const ModelReplica& replica, const GradientLayout& layout) {
  return those(layout.bucket_count(), [&](int b) { return dealt(replica, layout).contributes(b); });
}

std::vector<int> tensors_of(const ModelReplica& replica, const GradientLayout& layout) {
  return those(static_cast<int>(layout.buckets()->shapes().size()),
               [&](int t) { return dealt(replica, layout).contributes_to(t); });
}

// Buckets 0 and 1 have tensor 1, which is not cut, 2 has tensor 2 of shard 0, 3 has tensor 0 of shard 1, and 4 the
// batch statistic.
TEST(ModelReplica, AMemberContributesItsShardsAndAPartOfTheRest) {
  const ReplicaMember first(3, 0), second(3, 1), alone(3, 2);
  EXPECT_EQ(first.replica.members(), (std::vector<int>{0, 1}));
  EXPECT_EQ(buckets_of(first.replica, first.layout), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(buckets_of(second.replica, second.layout), (std::vector<int>{3, 4}));
  EXPECT_EQ(tensors_of(first.replica, first.layout), (std::vector<int>{1, 2}));
  EXPECT_EQ(tensors_of(second.replica, second.layout), (std::vector<int>{0, 3}));
  EXPECT_EQ(dealt(first.replica, first.layout).absent_tensors(), 2u);
  EXPECT_EQ(dealt(second.replica, second.layout).absent_tensors(), 2u);
  for (const ReplicaMember* member : {&first, &second}) {
    EXPECT_TRUE(member->replica.divides() && member->replica.divided());
    EXPECT_EQ(dealt(member->replica, member->layout).absent_buckets, 1) << "of the other's shard";
  }
  EXPECT_TRUE(first.replica.reports());
  EXPECT_FALSE(second.replica.reports());
  EXPECT_EQ(second.replica.place().shards, (Interval{1, 2}));
  EXPECT_EQ(second.replica.of_shards(), 2);
  EXPECT_EQ(alone.replica.place().replica, 1);
  EXPECT_TRUE(alone.replica.divides());
  EXPECT_FALSE(alone.replica.divided());
  EXPECT_TRUE(alone.replica.reports());
  EXPECT_EQ(buckets_of(alone.replica, alone.layout), (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(dealt(alone.replica, alone.layout).absent_tensors(), 0u);
  EXPECT_EQ(dealt(alone.replica, alone.layout).absent_buckets, 0);
}

TEST(ModelReplica, AnotherGenerationMayHaveOtherReplicas) {
  ReplicaMember member(3, 1);
  ASSERT_FALSE(dealt(member.replica, member.layout).contributes(0));
  Generation next = MemberParts::generation(2, 2, 0);
  next.members[1].peer = 3;
  next.members[0].peer = 2;
  form_replicas(next, 2, 2, 4);
  member.position.generation = next;
  member.position.index = 0;
  EXPECT_TRUE(dealt(member.replica, member.layout).contributes(0));
  EXPECT_FALSE(dealt(member.replica, member.layout).contributes(3));
  member.position.index = -1;
  member.position.generation->number = 3;
  EXPECT_TRUE(member.replica.members().empty()) << "it is no member any more";
  EXPECT_FALSE(member.replica.divided());
}

// Four members in two replicas, a shard each: all add up as many buckets of the shards and of the rest.
TEST(ModelReplica, OwnersTakeTurns) {
  RankGradient gradient;
  for (int t = 0; t < 3; ++t) gradient.gradients.push_back(Tensor::zeros({16}));
  GradientLayout layout(2, {}, test::parts_of_shards({-1, 0, 1}));
  layout.learn(gradient);
  MemberParts parts(4, 0);
  form_replicas(*parts.position.generation, 2, 2, 4);
  const ModelReplica replica(parts.position, layout);
  std::map<int, int> of_member;
  for (int b = 0; b < layout.bucket_count(); ++b) ++of_member[dealt(replica, layout).owner(b)];
  EXPECT_EQ(of_member, (std::map<int, int>{{0, 6}, {1, 6}, {2, 6}, {3, 6}}));
}

TEST(ModelReplica, IsNoneWithoutTensorParallelism) {
  const test::StepParts member(2, 1);
  EXPECT_FALSE(member.replica.divides() || member.replica.divided());
  const Contributions& dealt = member.replica.contributions(Buckets());
  EXPECT_EQ(dealt.owner(7), 1) << "member 7 % 2";
  EXPECT_TRUE(member.replica.reports() && dealt.contributes(7) && dealt.contributes_to(7));
}

// Two stages: members 0 and 1 have segments 1 and 2, and member 2 has segments 0 and 3, which are computed together.
TEST(ModelReplica, AMemberContributesTheTensorsOfItsStage) {
  RankGradient gradient;
  for (int t = 0; t < 5; ++t) gradient.gradients.push_back(Tensor::zeros({1}));
  for (int t = 0; t < 2; ++t) gradient.batch_statistics.push_back(Tensor::zeros({1}));
  GradientLayout layout(8, {},
                        TensorParts{.gradients = {{3, -1}, {1, 0}, {1, 1}, {2, -1}, {0, 1}}, .statistics = {2, 3}});
  layout.learn(gradient);
  const ReplicaLimits limits{
      .shards = 2, .tp = 2, .pp = 2, .segments = {.seconds = {1, 1, 1, 1}, .homes = {3, 1, 2, 3}}};
  std::set<int> contributed;
  for (int m = 0; m < 3; ++m) {
    MemberParts parts(3, m);
    form_replicas(*parts.position.generation, limits, 6);
    const ModelReplica replica(parts.position, layout);
    EXPECT_TRUE(replica.staged() && replica.divided());
    EXPECT_EQ(replica.members(), (std::vector<int>{0, 1, 2}));
    EXPECT_EQ(replica.stages(), (std::vector<std::vector<int>>{{0, 1}, {2}}));
    EXPECT_EQ(replica.stage(), m < 2 ? (std::vector<int>{0, 1}) : std::vector<int>{2});
    EXPECT_EQ(replica.runs(), (std::vector<PipelineRun>{{1, {0, 1}}, {0, {1, 3}}, {1, {3, 4}}}));
    EXPECT_EQ(replica.reporter(), 2) << "it computes the loss";
    EXPECT_EQ(replica.reports(), m == 2);
    EXPECT_EQ(replica.tensors_of(0), (std::vector<int>{1, 3, 5}));
    EXPECT_EQ(replica.tensors_of(1), (std::vector<int>{2, 3, 5}));
    EXPECT_EQ(replica.tensors_of(2), (std::vector<int>{0, 4, 6}));
    const std::vector<PipelinePass> passes = replica.passes({2, 5});
    EXPECT_EQ(passes.size(), m < 2 ? 4u : 8u);
    EXPECT_EQ(passes.front(), (PipelinePass{2, m < 2 ? 1 : 0, false}));
    for (const int b : buckets_of(replica, layout)) EXPECT_TRUE(contributed.insert(b).second) << "bucket " << b;
    EXPECT_EQ(dealt(replica, layout).absent_tensors(), 7 - tensors_of(replica, layout).size());
    EXPECT_EQ(dealt(replica, layout).absent_buckets, m < 2 ? 4 : 4);
  }
  EXPECT_EQ(contributed.size(), static_cast<size_t>(layout.bucket_count()));
}

TEST(ModelReplica, EachBucketIsContributedOnceByEveryReplica) {
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    const int shards = 1 + static_cast<int>(random() % 6), most = 1 + static_cast<int>(random() % 6) % shards;
    const int members = 1 + static_cast<int>(random() % 8);
    ReplicaLimits limits{.shards = shards, .tp = most};
    for (int segment = 0; segment < 4; ++segment) {
      limits.segments.seconds.push_back(1);
      limits.segments.homes.push_back(i % 2 == 0 && segment == 0 ? 3 : segment);
    }
    limits.pp = 1 + static_cast<int>(random() % 4) % most_stages(limits.segments);
    RankGradient gradient;
    TensorParts of_tensors;
    for (size_t t = 0; t < 1 + random() % 9; ++t) {
      of_tensors.gradients.push_back({.segment = static_cast<int>(random() % 4),
                                      .shard = static_cast<int>(random() % static_cast<unsigned>(shards + 1)) - 1});
      gradient.gradients.push_back(Tensor::zeros({1 + static_cast<int64_t>(random() % 7)}));
    }
    if (random() % 2 == 0) {
      gradient.batch_statistics.push_back(Tensor::zeros({3}));
      of_tensors.statistics.push_back(static_cast<int>(random() % 4));
    }
    const std::optional<ShardOptions> sharding =
        random() % 2 == 0 ? std::nullopt : std::optional(ShardOptions{.multiple = 2, .parameters = [&] {
                                                                        std::vector<Shape> shapes;
                                                                        for (const Tensor& tensor : gradient.gradients)
                                                                          shapes.push_back(tensor.shape());
                                                                        return shapes;
                                                                      }()});
    GradientLayout layout(3, sharding, of_tensors);
    layout.learn(gradient);
    std::map<std::pair<int, int>, int> contributions;  // by replica and bucket
    std::map<int, std::set<int>> owners;               // by bucket, as each member sees them
    for (int m = 0; m < members; ++m) {
      MemberParts parts(members, m);
      form_replicas(*parts.position.generation, limits, 4);
      const ModelReplica replica(parts.position, layout);
      const std::vector<int> buckets = buckets_of(replica, layout);
      for (const int b : buckets) ++contributions[{replica.place().replica, b}];
      for (int b = 0; b < layout.bucket_count(); ++b) {
        owners[b].insert(dealt(replica, layout).owner(b));
        EXPECT_TRUE(dealt(replica, layout).owner(b) != m || dealt(replica, layout).contributes(b))
            << "an owner has a rank gradient of its own";
      }
      size_t absent = 0;
      int of_others = 0;
      for (size_t t = 0; t < of_tensors.gradients.size() + gradient.batch_statistics.size(); ++t) {
        const auto [first, last] = layout.buckets()->of(static_cast<int>(t));
        const bool needed = std::ranges::any_of(buckets, [&](int b) { return first <= b && b < last; });
        EXPECT_EQ(dealt(replica, layout).contributes_to(static_cast<int>(t)), needed);
        absent += !needed;
      }
      EXPECT_EQ(dealt(replica, layout).absent_tensors(), absent);
      for (int b = 0; b < layout.bucket_count(); ++b) {
        const NetworkPart part = layout.part(layout.buckets()->slices(b)[0].tensor);
        const ReplicaPlace& place = replica.place();
        const bool of_stage = place.segments.empty() || contains(place.segments, part.segment);
        const bool of_own = of_stage && (part.shard < 0 || contains({&place.shards, 1}, part.shard));
        EXPECT_TRUE(of_own || !dealt(replica, layout).contributes(b));
        EXPECT_TRUE(part.shard < 0 || dealt(replica, layout).contributes(b) == of_own);
        of_others += !of_own;
      }
      EXPECT_EQ(dealt(replica, layout).absent_buckets, of_others);
    }
    const int replicas = (members + limits.members() - 1) / limits.members();
    EXPECT_EQ(contributions.size(), static_cast<size_t>(replicas * layout.bucket_count()));
    for (const auto& [place, times] : contributions) EXPECT_EQ(times, 1) << "bucket " << place.second;
    for (const auto& [bucket, members_of] : owners) EXPECT_EQ(members_of.size(), 1u) << "bucket " << bucket;
  }
}

}  // namespace
}  // namespace elinvar
