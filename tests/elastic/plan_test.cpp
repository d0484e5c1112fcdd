// Planned changes of the membership.
#include "elastic/protocol/plan.h"

#include <gtest/gtest.h>

namespace elinvar {
namespace {

using Peers = std::vector<PeerId>;
using State = Worker::State;

// Members 1, 2, .., which keep the optimizer's state, except for `keep_nothing`.
struct PlannedJob {
  explicit PlannedJob(int members, const std::vector<int>& keep_nothing = {}) {
    current.sharding.emplace();
    for (int id = 1; id <= members; ++id) {
      const auto peer = static_cast<PeerId>(id);
      current.members.push_back({.id = id, .peer = peer, .endpoint = "", .share = {}, .first_share = {}});
      roster[peer] = {.peer = peer, .id = id, .state = State::member};
      if (std::find(keep_nothing.begin(), keep_nothing.end(), id) == keep_nothing.end())
        current.sharding->keepers.ids.push_back(id);
    }
  }
  void drain(const Peers& peers) {
    for (const PeerId peer : peers) roster.at(peer).draining = true;
  }
  void add(PeerId peer, State state) { roster[peer] = {.peer = peer, .state = state}; }
  std::optional<Plan> plan() const { return elinvar::plan(current, roster, {}, {.vranks = 4}, false); }

  Generation current;
  Roster roster;
};

TEST(Plan, AKeeperHandsItsStateOverBeforeItLeaves) {
  PlannedJob job(3);
  EXPECT_FALSE(job.plan());
  job.drain({2});
  const std::optional<Plan> first = job.plan();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->members, (Peers{1, 3, 2})) << "2 stays";
  EXPECT_EQ(first->reason, "worker 2 hands over the state that it keeps");
  EXPECT_FALSE(first->stop);
  PlannedJob next(3, /*keep_nothing=*/{2});
  next.drain({2});
  const std::optional<Plan> second = next.plan();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->members, (Peers{1, 3}));
  EXPECT_EQ(second->reason, "worker 2 leaves");
}

TEST(Plan, WithoutShardedStateAWorkerLeavesAtOnce) {
  PlannedJob job(3);
  job.current.sharding.reset();
  job.drain({2});
  EXPECT_EQ(job.plan()->members, (Peers{1, 3}));
}

TEST(Plan, OneMayLeaveWhileAnotherHandsOver) {
  PlannedJob job(3, /*keep_nothing=*/{2});
  job.drain({2, 3});
  const std::optional<Plan> plan = job.plan();
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->members, (Peers{1, 3}));
  EXPECT_EQ(plan->reason, "worker 2 leaves, worker 3 hands over the state that it keeps");
}

TEST(Plan, WhereAllLeaveTheStateIsSaved) {
  PlannedJob job(2);
  job.drain({1, 2});
  const std::optional<Plan> plan = job.plan();
  ASSERT_TRUE(plan);
  EXPECT_TRUE(plan->stop && plan->checkpoint);
  EXPECT_EQ(plan->reason, "worker 1 leaves, worker 2 leaves");
  EXPECT_EQ(plan->members, (Peers{1, 2}));
  job.add(7, State::receiving);
  EXPECT_FALSE(job.plan()) << "a newcomer is about to join";
}

// The newcomer gets the state of all that leave.
TEST(Plan, ANewcomerTakesOverFromAllThatLeave) {
  PlannedJob job(2);
  job.drain({1, 2});
  job.add(7, State::ready);
  const std::optional<Plan> plan = job.plan();
  ASSERT_TRUE(plan);
  EXPECT_FALSE(plan->stop);
  EXPECT_EQ(plan->members, (Peers{7, 1, 2}));
  EXPECT_EQ(plan->joining, Peers{7});
  EXPECT_EQ(plan->reason,
            "a worker joins, worker 1 hands over the state that it keeps, worker 2 hands over the state that it keeps");
}

// Members 1 to 4, of which 1 and 2 form a model replica, and 3 and 4.
struct PlannedPairs : PlannedJob {
  PlannedPairs() : PlannedJob(4) {
    current.sharding.reset();
    deal({1, 1, 1, 1});
  }
  // Deals shards and virtual ranks as for these speeds.
  void deal(const std::vector<double>& speeds) {
    const std::vector<ReplicaPlace> places = deal_replicas(limits.replica, speeds);
    const auto shares =
        shares_of_members(places, assign(limits.vranks, replica_speeds(limits.replica.shards, places, speeds)));
    for (size_t m = 0; m < 4; ++m) {
      current.members[m].place = places[m];
      current.members[m].share = shares[m];
    }
    current.shards = limits.replica.shards;
  }
  void measure(const std::vector<double>& speeds) {
    for (size_t m = 0; m < 4; ++m) roster.at(current.members[m].peer).speed = speeds[m];
  }
  std::string reason() const {
    const std::optional<Plan> plan = elinvar::plan(current, roster, {}, limits, /*may_reassign=*/true);
    return plan ? plan->reason : "";
  }
  const PlanLimits limits{.vranks = 8, .replica = {.shards = 4, .tp = 2}};
};

// The shards of a replica are dealt by its members' speeds, and virtual ranks by those of the replicas.
TEST(Plan, OtherSharesMakeModelReplicasFaster) {
  PlannedPairs job;
  EXPECT_EQ(job.reason(), "") << "nothing is measured";
  job.measure({1, 1, 1, 1});
  EXPECT_EQ(job.reason(), "");
  // The first pair becomes twice as fast: it takes 5 virtual ranks of 1/4, and the other 3 of 1/2.
  job.measure({3, 1, 1, 1});
  EXPECT_EQ(job.reason(), "other shares: a step takes 75 % of the time");
  job.deal({3, 1, 1, 1});
  EXPECT_EQ(job.reason(), "");
  job.measure({1, 1, 1, 1});
  EXPECT_NE(job.reason(), "") << "and back";
  job.deal({1, 1, 1, 1});
  job.measure({1.05, 1, 1, 1});
  EXPECT_EQ(job.reason(), "") << "too little to be worth it";
}

}  // namespace
}  // namespace elinvar
