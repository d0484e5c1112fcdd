// When plans are made, and how their decisions are carried out.
#include "tools/pool/daemon/planner.h"

#include <gtest/gtest.h>

#include "tests/pool/scheduler_parts.h"

namespace elinvar::pool {
namespace {

class PoolPlanner : public test::SchedulerParts {
 protected:
  PoolPlanner() { lifecycle_.load(1); }
};

TEST_F(PoolPlanner, PlansWhenAskedAndEverySoOften) {
  planner_.plan_if_due(lifecycle_.jobs(), /*answered=*/false, 1);
  EXPECT_EQ(plans_, 0) << "a source may still name what jobs run on";
  planner_.plan_if_due(lifecycle_.jobs(), true, 2);
  planner_.plan_if_due(lifecycle_.jobs(), true, 3);
  EXPECT_EQ(plans_, 1);
  planner_.request();
  planner_.plan_if_due(lifecycle_.jobs(), true, 4);
  EXPECT_EQ(plans_, 2);
  planner_.plan_if_due(lifecycle_.jobs(), true, 14);
  EXPECT_EQ(plans_, 3);
  EXPECT_EQ(lines("waits"), 1u) << "the same decision is logged once";
  EXPECT_EQ(planner_.wanted(), 0);
}

TEST_F(PoolPlanner, KeepsDecisionsAndPredictions) {
  give_ = ids();
  planner_.plan_if_due(lifecycle_.jobs(), true, 2);
  ASSERT_NE(planner_.decision(job_), nullptr);
  EXPECT_EQ(planner_.decision(job_)->slots, ids());
  EXPECT_EQ(places_of(*planner_.decision(job_)).size(), 2u);
  EXPECT_TRUE(profiler_.predicted(job_, {{"cpu-1", 2}}, {}));
  EXPECT_EQ(pool_.jobs[0].shapes.size(), 4u) << "one slot a worker or two, with and without recomputation";
  planner_.forget(job_);
  EXPECT_EQ(planner_.decision(job_), nullptr);
}

TEST_F(PoolPlanner, APlanThatBreaksTheRulesChangesNothing) {
  give_ = {ids()[0]};
  planner_.plan_if_due(lifecycle_.jobs(), true, 2);
  give_ = {ids()[0], 99};
  planner_.plan_if_due(lifecycle_.jobs(), true, 20);
  EXPECT_EQ(planner_.decision(job_)->slots, std::vector<Id>{ids()[0]});
  options_.policy = [](const Pool&) -> Plan { throw Failure("no idea"); };
  planner_.plan_if_due(lifecycle_.jobs(), true, 40);
  EXPECT_EQ(planner_.decision(job_)->slots, std::vector<Id>{ids()[0]});
  EXPECT_EQ(lines("plan"), 3u);
}

TEST_F(PoolPlanner, AnExcludedHostIsNotInThePool) {
  for (int i = 0; i < 3; ++i) backoff_.failed("a", 1, 2);
  planner_.plan_if_due(lifecycle_.jobs(), true, 3);
  EXPECT_TRUE(pool_.slots.empty());
  planner_.plan_if_due(lifecycle_.jobs(), true, 30);
  EXPECT_EQ(pool_.slots.size(), 2u);
}

// The fake host's CPU slots can be one worker, also while the pool has GPUs.
TEST_F(PoolPlanner, AGpuThatJoinsLeavesAWideWorkerItsShape) {
  give_ = ids();
  shape_ = {.width = 2};
  planner_.plan_if_due(lifecycle_.jobs(), true, 2);
  source_->there.push_back({.host = "b", .kind = "H200", .device = "cuda", .slots = 4});
  refresh(3);
  planner_.plan_if_due(lifecycle_.jobs(), true, 20);
  EXPECT_EQ(lines("plan"), 1u) << "the decision stays, and no plan breaks the rules";
  EXPECT_EQ(planner_.decision(job_)->shape.width, 2);
  ASSERT_EQ(pool_.slots.size(), 6u);
  for (const Slot& slot : pool_.slots) EXPECT_EQ(slot.combinable, slot.kind == "cpu-1");
  EXPECT_EQ(pool_.jobs[0].shapes.size(), 4u) << "the widest worker has the two CPU slots of a host";
}

// The job may have two workers, and has one of two slots.
TEST_F(PoolPlanner, WantsSlotsForWorkersAsWideAsPlanned) {
  give_ = ids();
  planner_.plan_if_due(lifecycle_.jobs(), true, 2);
  EXPECT_EQ(planner_.wanted(), 0);
  shape_ = {.width = 2};
  planner_.plan_if_due(lifecycle_.jobs(), true, 20);
  EXPECT_EQ(planner_.wanted(), 2);
}

}  // namespace
}  // namespace elinvar::pool
