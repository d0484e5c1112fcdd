#include "elastic/step/assignment.h"

#include <nlohmann/json.hpp>
#include <gtest/gtest.h>

#include "elastic/run/generation_store.h"
#include "tensor/base/check.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

using Shares = std::vector<std::vector<Interval>>;

TEST(Assignment, CoversAllInProportionToSpeed) {
  EXPECT_EQ(assign(6, std::vector<double>{1, 1, 1}), (Shares{{{0, 2}}, {{2, 4}}, {{4, 6}}}));
  EXPECT_EQ(assign(6, std::vector<double>{2, 1}), (Shares{{{0, 4}}, {{4, 6}}}));
  EXPECT_EQ(assign(2, std::vector<double>{1, 1, 1}), (Shares{{{0, 1}}, {{1, 2}}, {}}));  // a spare
  EXPECT_EQ(assign(5, std::vector<double>{1}), (Shares{{{0, 5}}}));
  EXPECT_THROW(assign(5, std::vector<double>{}), UsageError);
  EXPECT_THROW(assign(5, std::vector<double>{1, 0}), UsageError);
}

TEST(Assignment, IsNeverSlowerThanAnyOtherAssignmentOfWholeRanks) {
  const std::vector<double> speeds = {3.1, 1.7, 0.4};
  for (int n = 1; n < 20; ++n) {
    double best = 1e9;
    for (int a = 0; a <= n; ++a)
      for (int b = 0; a + b <= n; ++b)
        best = std::min(best, std::max({a / speeds[0], b / speeds[1], (n - a - b) / speeds[2]}));
    EXPECT_DOUBLE_EQ(step_time(assign(n, speeds), speeds), best) << n;
  }
}

TEST(Assignment, OrphansGoToWhoeverIsFinishedFirst) {
  EXPECT_EQ(assign_orphans(8, {{{0, 3}}, {{6, 8}}}, std::vector<double>{1, 1}),
            (Shares{{{0, 3}, {4, 5}}, {{3, 4}, {5, 8}}}));
  EXPECT_EQ(assign_orphans(4, {{}, {}}, std::vector<double>{1, 3}), (Shares{{{2, 3}}, {{0, 2}, {3, 4}}}));
  EXPECT_THROW(assign_orphans(4, {{{0, 3}}, {{2, 4}}}, std::vector<double>{1, 1}), UsageError);
}

TEST(Assignment, GivesEachAtLeastAsManyAsAsked) {
  EXPECT_EQ(assign(6, std::vector<double>{100, 1, 1}, /*least=*/1), (Shares{{{0, 4}}, {{4, 5}}, {{5, 6}}}));
  EXPECT_EQ(assign(3, std::vector<double>{100, 1, 1}, 1), (Shares{{{0, 1}}, {{1, 2}}, {{2, 3}}}));
  EXPECT_EQ(assign(6, std::vector<double>{1, 1}, 2), assign(6, std::vector<double>{1, 1}));
  EXPECT_THROW(assign(2, std::vector<double>{1, 1, 1}, 1), UsageError);
}

TEST(Generations, ARecordIsCreatedOnce) {
  const test::TemporaryFolder folder;
  GenerationStore store(folder / "run");
  EXPECT_FALSE(store.newest());
  Generation g{.number = 3, .run = 99, .first_step = 7, .members = {}, .next_id = 5, .reason = "why"};
  g.members = {{.id = 4,
                .peer = 1234567890123456789u,
                .endpoint = "tcp://h:1",
                .share = {{0, 2}},
                .first_share = {{0, 1}, {3, 4}}}};
  EXPECT_TRUE(store.create(g));
  EXPECT_FALSE(store.create(g));
  g.number = 12;
  g.sharding = {.zero = 1, .keepers = {.ids = {4}, .copies = 2}, .holders = {.ids = {2, 3}, .copies = 2}};
  EXPECT_TRUE(store.create(g));
  const Generation read = *store.newest();
  EXPECT_EQ(to_json(read), to_json(g));
  EXPECT_EQ(read.sharding, g.sharding);
  EXPECT_EQ(read.share(0, 7), (std::vector<Interval>{{0, 1}, {3, 4}}));
  EXPECT_EQ(read.share(0, 8), (std::vector<Interval>{{0, 2}}));
}

TEST(Generations, ARecordSaysWhereTheOptimizersStateIs) {
  Generation g{.number = 1, .members = {}, .reason = ""};
  EXPECT_EQ(generation_from(to_json(g)).sharding, std::nullopt);
  g.sharding = {.zero = 2, .keepers = {.ids = {1, 4}, .copies = 3}, .holders = {.ids = {1, 2}}, .whole = true};
  EXPECT_EQ(generation_from(to_json(g)).sharding, g.sharding);
}

// Members 1, 2 and 3, of which the first two share four virtual shards.
Generation generation_of_replicas() {
  Generation g{.number = 1, .members = {}, .reason = ""};
  for (const ReplicaPlace& place : std::vector<ReplicaPlace>{{0, {0, 3}}, {0, {3, 4}}, {1, {0, 4}}})
    g.members.push_back(
        {.id = static_cast<int>(g.members.size()) + 1, .endpoint = "", .share = {}, .first_share = {}, .place = place});
  g.shards = 4;
  return g;
}

TEST(Generations, ARecordSaysWhichVirtualShardsMembersCompute) {
  Generation g = generation_of_replicas();
  const Generation read = generation_from(to_json(g));
  EXPECT_EQ(read.shards, 4);
  for (size_t m = 0; m < 3; ++m) EXPECT_EQ(read.members[m].place, g.members[m].place);
  g.shards = 0;
  EXPECT_FALSE(to_json(g).contains("shards"));
  EXPECT_FALSE(to_json(g)["members"][0].contains("replica"));
  EXPECT_EQ(generation_from(to_json(g)).members[1].place, ReplicaPlace{}) << "each computes all of them";
}

TEST(Generations, PlacesThatDoNotFitAreRefused) {
  const auto refused = [](size_t member, const ReplicaPlace& place) {
    Generation g = generation_of_replicas();
    g.members[member].place = place;
    try {
      generation_from(to_json(g));
    } catch (const Failure& failure) {
      return std::string(failure.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused(0, {0, {0, 3}}), "");
  EXPECT_NE(refused(0, {0, {0, 2}}).find("member 2 has shards 3 to 4 of 4 in stage 0 of replica 0"), std::string::npos)
      << "a gap";
  EXPECT_NE(refused(0, {0, {1, 3}}), "") << "the first shard is missing";
  EXPECT_NE(refused(1, {0, {2, 4}}), "") << "a shard that two have";
  EXPECT_NE(refused(1, {0, {3, 3}}), "") << "no shard";
  EXPECT_NE(refused(1, {0, {3, 5}}), "") << "more shards than there are";
  EXPECT_NE(refused(1, {1, {3, 4}}), "") << "the replica before is not complete";
  EXPECT_NE(refused(2, {0, {0, 4}}), "") << "its replica is complete";
  EXPECT_NE(refused(2, {2, {0, 4}}), "") << "a replica is left out";
  EXPECT_NE(refused(2, {1, {0, 3}}).find("replica 1 has shards up to 3 of 4"), std::string::npos);
  EXPECT_NE(refused(0, {-1, {0, 3}}), "");
  for (const auto share : {&GenerationMember::share, &GenerationMember::first_share}) {
    Generation g = generation_of_replicas();
    (g.members[1].*share).push_back({90, 91});
    EXPECT_THROW(generation_from(to_json(g)), Failure) << "members of a replica have the same virtual ranks";
  }
  nlohmann::json without = to_json(generation_of_replicas());
  without["members"][1].erase("shards");
  EXPECT_THROW(generation_from(without), Failure);
}

}  // namespace
}  // namespace elinvar
