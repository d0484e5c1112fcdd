// Which optimizer state a member keeps, gives and takes, and when the moves count.
#include "elastic/protocol/optimizer_shards.h"

#include <gtest/gtest.h>

#include "tests/elastic/sharded_member.h"

namespace elinvar {
namespace {

using test::has;
using test::kept_by;
using test::ShardedMember;
using test::without;

using Numbers = std::vector<int>;

// A third worker comes: it keeps a part of what the first two held.
const Sharding kThirdComes{.keepers = {.ids = {1, 2, 3}, .copies = 2}, .holders = {.ids = {1, 2}, .copies = 1}};
const Numbers kGained = kept_by(3, kThirdComes.keepers);  // by the third
// Then the second is gone.
const Sharding kSecondGoes{.keepers = {.ids = {1, 3}, .copies = 2}, .holders = kThirdComes.keepers};

TEST(OptimizerShards, TheRecordSaysWhoKeepsAndWhoProvides) {
  const auto keepers = keepers_of(kThirdComes.keepers, 5), holders = keepers_of(kThirdComes.holders, 5);
  for (int index = 0; index < 3; ++index) {
    ShardedMember at(3, index, kThirdComes);
    const int id = index + 1;
    EXPECT_TRUE(at.shards.on());
    EXPECT_EQ(at.shards.zero(), 1);
    EXPECT_EQ(at.shards.kept(), kept_by(id, kThirdComes.keepers));
    Numbers held, owned;
    for (int b = 0; b < 5; ++b) {
      const auto i = static_cast<size_t>(b);
      EXPECT_EQ(at.shards.keepers(b), (std::vector<int>{keepers[i][0] - 1, keepers[i][1] - 1})) << "as indexes";
      if (holders[i][0] == id) held.push_back(b);
      if (keepers[i][0] == id) owned.push_back(b);
    }
    EXPECT_EQ(at.shards.provides(4), held) << "the first state is that of the holders";
    EXPECT_EQ(at.shards.provides(5), owned);
  }
}

TEST(OptimizerShards, AreOffWithoutARecordOfThem) {
  ShardedMember at(2, 0, {});
  at.position.generation->sharding.reset();
  EXPECT_FALSE(at.shards.on());
  EXPECT_EQ(at.shards.zero(), 0);
  EXPECT_EQ(at.shards.missing(), "");
  EXPECT_TRUE(at.shards.take_gives().empty());
  at.step();
  EXPECT_FALSE(at.shards.held());
}

TEST(OptimizerShards, StateIsGivenOnceAndOnlyThatOfTheFirstStep) {
  Numbers all;
  for (int index = 0; index < 2; ++index) {
    ShardedMember at(3, index, kThirdComes);
    at.position.step = 3;  // the update before the first step is not made yet
    EXPECT_TRUE(at.shards.take_gives().empty());
    at.position.step = 4;
    at.position.completed = 5;  // it may change the state at any time
    EXPECT_TRUE(at.shards.take_gives().empty());
    at.position.completed = 4;
    at.position.generation->stop = true;
    EXPECT_TRUE(at.shards.take_gives().empty()) << "no step follows";
    at.position.generation->stop = false;
    Numbers to_the_third;
    for (const OptimizerShards::Give& give : at.shards.take_gives()) {
      EXPECT_NE(give.to, at.position.self);
      for (const int b : give.buckets) {
        EXPECT_TRUE(has(at.shards.provides(4), b));
        EXPECT_FALSE(has(kept_by(static_cast<int>(give.to), kThirdComes.holders), b)) << "it has the bucket";
        if (give.to == 3) to_the_third.push_back(b);
      }
    }
    EXPECT_TRUE(at.shards.take_gives().empty()) << "once";
    all.insert(all.end(), to_the_third.begin(), to_the_third.end());
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, kGained);
}

TEST(OptimizerShards, ThePartOfTheTrailerWaitsForTheState) {
  ShardedMember at(3, 2, kThirdComes);
  for (size_t left = kGained.size(); left > 0; --left) {
    EXPECT_EQ(at.shards.missing(), "the optimizer's state of " + std::to_string(left) + " buckets");
    at.receive_state(1, kGained[left - 1]);
  }
  EXPECT_EQ(at.shards.missing(), "");
  ShardedMember holder(3, 0, {.keepers = kThirdComes.keepers, .holders = {.ids = {1}, .copies = 1}});
  EXPECT_EQ(holder.shards.missing(), "") << "it has all";
  ShardedMember later(3, 2, kThirdComes);
  later.position.completed = 5;
  EXPECT_EQ(later.shards.missing(), "") << "its first step is complete";
  later.position.completed = later.position.steps = 4;
  EXPECT_EQ(later.shards.missing(), "") << "no update follows";
}

TEST(OptimizerShards, ACommitChangesWhatIsKept) {
  ShardedMember at(3, 2, kThirdComes);
  at.shards.learned();
  for (const int b : kGained) at.receive_state(1, b);
  at.shards.promise();
  EXPECT_FALSE(at.shards.held()) << "the holders' state counts until the trailer comes";
  EXPECT_FALSE(at.shards.take_change());
  at.complete();
  ASSERT_TRUE(at.shards.held());
  EXPECT_EQ(at.shards.held()->generation, 1);
  EXPECT_EQ(at.shards.held()->deal, kThirdComes.keepers);
  EXPECT_FALSE(at.shards.held()->whole);
  const auto change = at.shards.take_change();
  ASSERT_TRUE(change);
  EXPECT_EQ(change->kept, kGained);
  ASSERT_EQ(change->gained.size(), kGained.size());
  for (const auto& [b, state] : change->gained)
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(state.tensors.at(0).data), state.tensors[0].bytes),
              "state " + std::to_string(b));
  EXPECT_FALSE(at.shards.take_change()) << "once";
  ++at.position.step;
  at.step();
  EXPECT_FALSE(at.shards.take_change()) << "later steps change nothing";
  EXPECT_EQ(at.shards.held()->generation, 1);
}

TEST(OptimizerShards, WhoHasRestoredHoldsAllUntilTheFirstCommit) {
  const BucketDeal both{.ids = {1, 2}, .copies = 1};
  ShardedMember at(2, 1, {.keepers = both, .holders = both, .whole = true});
  at.shards.restored(1);
  EXPECT_TRUE(at.shards.held()->whole);
  EXPECT_EQ(at.shards.missing(), "");
  EXPECT_TRUE(at.shards.take_gives().empty()) << "both have everything";
  at.step();
  EXPECT_FALSE(at.shards.held()->whole);
  const auto change = at.shards.take_change();
  ASSERT_TRUE(change);
  EXPECT_EQ(change->kept, kept_by(2, both));
  EXPECT_TRUE(change->gained.empty());
  at.shards.learned();
  EXPECT_FALSE(at.shards.held());
}

// The others have made the step that changed it, and have begun another generation.
TEST(OptimizerShards, WhoLacksTheStepOfAChangeHoldsTheStateAsBefore) {
  const BucketDeal both{.ids = {1, 2}, .copies = 2};
  ShardedMember at(2, 0, {.keepers = both, .holders = both});
  at.step();
  at.enter(2, 2, 5, {.zero = 3, .keepers = both, .holders = both, .zero_before = 1});
  at.shards.promise();
  at.fence(3);
  at.enter(3, 2, 6, {.zero = 3, .keepers = both, .holders = both, .zero_before = 3});
  EXPECT_EQ(at.shards.held_with(5), 1);
  EXPECT_EQ(at.shards.held_here(), 1);
  at.complete();
  EXPECT_EQ(at.shards.held_with(6), 3);
  EXPECT_EQ(at.shards.held_here(), 3);
}

// Nobody has the trailer: the step is repeated in another generation, from the same holders.
TEST(OptimizerShards, WhatNobodyCommittedDoesNotCount) {
  ShardedMember at(3, 2, kThirdComes);
  for (const int b : kGained) at.receive_state(1, b);
  at.shards.promise();
  at.fence(2);
  at.shards.uncommitted();
  at.enter(2, 3, 4, kThirdComes);
  EXPECT_NE(at.shards.missing(), "") << "the state of an older generation does not count";
  at.shards.committed(4);
  EXPECT_FALSE(at.shards.held());
  EXPECT_FALSE(at.shards.take_change());
}

// Another member has the trailer. This one hears of it after the fence, and what it had promised then counts.
TEST(OptimizerShards, ACommitMayComeAfterAFence) {
  ShardedMember at(3, 2, kThirdComes);
  for (const int b : kGained) at.receive_state(1, b);
  at.shards.promise();
  at.fence(2);
  at.enter(2, 3, 5, kSecondGoes);
  at.complete();
  ++at.position.step;
  ASSERT_TRUE(at.shards.held());
  EXPECT_EQ(at.shards.held()->generation, 1);
  EXPECT_EQ(at.shards.held()->deal, kThirdComes.keepers);
  EXPECT_EQ(at.shards.take_change()->kept, kGained);
  // With two keepers of two copies, it gets all else.
  const Numbers lacks = without({0, 1, 2, 3, 4}, kGained);
  ASSERT_FALSE(lacks.empty());
  for (const int b : lacks) {
    EXPECT_NE(at.shards.missing(), "");
    at.receive_state(2, b);
  }
  EXPECT_EQ(at.shards.missing(), "");
  at.step();
  EXPECT_EQ(at.shards.held()->generation, 2);
  const auto change = at.shards.take_change();
  EXPECT_EQ(change->kept, (Numbers{0, 1, 2, 3, 4}));
  EXPECT_EQ(change->gained.size(), lacks.size());
}

TEST(OptimizerShards, StateMayComeEarlyButNotLate) {
  ShardedMember at(3, 2, kThirdComes);
  at.receive_state(2, kGained[0]);
  const std::string missing = at.shards.missing();
  at.enter(2, 3, 4, kThirdComes);
  EXPECT_NE(at.shards.missing(), missing) << "it came before this member entered the generation";
  at.fence(3);
  at.receive_state(2, kGained[1]);
  at.position.generation->number = 3;
  EXPECT_EQ(at.shards.missing(), missing) << "all of it is that of an older generation";
}

}  // namespace
}  // namespace elinvar
