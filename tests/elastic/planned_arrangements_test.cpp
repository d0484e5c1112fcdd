// The generations of another arrangement: one that is asked for, and one that the job chooses.
#include <gtest/gtest.h>

#include "tests/elastic/planner.h"

namespace elinvar {
namespace {

using test::Planner;
using test::ShardedPlanner;
using Phase = JobState::Phase;
using State = Worker::State;

// --- Another arrangement.

TEST(PlannedArrangements, AnArrangementThatIsAskedForIsThatOfTheSameMembers) {
  Planner p({.steps = 100, .virtual_shards = 4, .plan = {.vranks = 8}});
  p.job.run({1, 2, 3});
  p.job.state.wanted = ArrangementChoice{Arrangement{.tp = 2}, ""};
  EXPECT_FALSE(p.planner.propose(1));
  ASSERT_EQ(p.job.world.created.size(), 1u);
  EXPECT_EQ(p.newest().reason, "arrangement tp=2");
  EXPECT_EQ(p.newest().arrangement, (Arrangement{.tp = 2}));
  EXPECT_EQ(p.newest().ids(), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(p.newest().shards, 4);
  EXPECT_EQ(p.newest().members[1].place.replica, 0);
  EXPECT_EQ(p.newest().members[2].place.replica, 1);
  EXPECT_EQ(p.newest().sharding->keepers, (BucketDeal{.ids = {1, 2, 3}, .copies = kMostParallel}));
  EXPECT_FALSE(p.job.state.wanted);
}

TEST(PlannedArrangements, TheFirstKeepersOfAShardedStateHaveAllOfIt) {
  Planner p;
  p.job.run({1, 2});
  p.job.state.wanted = ArrangementChoice{Arrangement{.zero = 2, .copies = 1}, ""};
  EXPECT_FALSE(p.planner.propose(1));
  EXPECT_EQ(p.newest().sharding, (Sharding{.zero = 2,
                                           .keepers = {.ids = {1, 2}, .copies = 1},
                                           .holders = {.ids = {1, 2}, .copies = 1},
                                           .whole = true,
                                           .zero_before = 0}));
}

// Without ZeRO every member keeps all buckets.
TEST(PlannedArrangements, AShardedStateRemainsSharded) {
  ShardedPlanner p;
  p.job.state.wanted = ArrangementChoice{Arrangement{}, ""};
  EXPECT_FALSE(p.planner.propose(1));
  EXPECT_EQ(p.newest().sharding->zero, 1);
  EXPECT_EQ(p.newest().sharding->zero_before, 1);
  EXPECT_EQ(p.newest().sharding->keepers, (BucketDeal{.ids = {1, 2, 3}, .copies = kMostParallel}));
  EXPECT_EQ(p.newest().sharding->holders, p.kept);
}

// Such a worker holds the state as the members did when it came. Those that have only said hello come back.
TEST(PlannedArrangements, MembersDoNotHoldTheStateOtherwiseWhileAWorkerLearnsIt) {
  for (const State state : {State::joining, State::receiving, State::ready})
    for (const bool welcomed : {false, true}) {
      ShardedPlanner p;
      p.job.add(7, state).welcomed = welcomed;
      p.job.state.wanted = ArrangementChoice{Arrangement{.zero = 2}, ""};
      EXPECT_FALSE(p.planner.propose(1));
      EXPECT_FALSE(p.job.state.wanted) << "members hold it alike in both stages";
      ShardedPlanner q;
      q.job.add(7, state).welcomed = welcomed;
      q.job.state.wanted = ArrangementChoice{Arrangement{.zero = 3}, ""};
      EXPECT_FALSE(q.planner.propose(1));
      EXPECT_EQ(q.job.state.wanted.has_value(), state != State::joining || welcomed);
    }
}

// --- Arrangements that the job chooses.

// Tensor parallelism is faster with two workers, but not with three.
CoordinatorOptions automatic() {
  const Arrangement plain, together{.tp = 2};
  return {.steps = 100,
          .forecasts = {.of_workers = {{{plain, 8}}, {{together, 3}, {plain, 4}}, {{plain, 2}, {together, 3}}},
                        .change = 10},
          .virtual_shards = 4,
          .plan = {.vranks = 8}};
}

TEST(PlannedArrangements, ABetterArrangementFollowsAChangeOfMembers) {
  Planner p(automatic());
  p.job.run({1, 2});
  for (auto& [peer, w] : p.job.state.workers) w.about.shards = 5;
  EXPECT_FALSE(p.planner.propose(1));
  EXPECT_TRUE(p.job.world.created.empty()) << "it is wanted first";
  EXPECT_FALSE(p.planner.propose(1));
  ASSERT_EQ(p.job.world.created.size(), 1u);
  EXPECT_EQ(p.newest().reason, "arrangement tp=2: a step with 2 workers is predicted to take 75 % of the time");
  EXPECT_EQ(p.newest().arrangement, (Arrangement{.tp = 2}));
  EXPECT_TRUE(p.newest().automatic);
  EXPECT_EQ(p.job.count("arrange"), 1);
}

TEST(PlannedArrangements, AChoiceForOtherMembersDoesNotCount) {
  Planner p(automatic());
  p.job.run({1, 2});
  for (auto& [peer, w] : p.job.state.workers) w.about.shards = 5;
  EXPECT_FALSE(p.planner.propose(1));
  ASSERT_TRUE(p.job.state.wanted);
  p.job.add(7, State::ready).id = 0;
  p.job.state.phase = Phase::fencing;
  EXPECT_FALSE(p.planner.recover({.step = 1, .members = {1, 2, 7}, .completed = {}}, {}, "a worker came", 1));
  EXPECT_FALSE(p.job.state.wanted);
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(p.planner.propose(1));
  EXPECT_EQ(p.newest().reason, "a worker came") << "plain data parallelism is the best for three";
}

TEST(PlannedArrangements, NoArrangementIsChosenThatTheNetworkDoesNotAllow) {
  CoordinatorOptions options = automatic();
  options.virtual_shards = 1;
  Planner p(options);
  p.job.run({1, 2});
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(p.planner.propose(1));
  EXPECT_TRUE(p.job.world.created.empty());
}

}  // namespace
}  // namespace elinvar
