// When plans are made, and what becomes of their decisions.
#include "tools/pool/daemon/planner.h"

#include <gtest/gtest.h>

#include "tests/pool/fake_world.h"
#include "tests/pool/inventory_scene.h"

namespace elinvar::pool {
namespace {

using test::FakeWorld;

// The planner over a pool of two slots on a host, with a policy that a test writes.
class PoolPlanner : public test::InventoryScene {
 protected:
  PoolPlanner() {
    source_->there = {{.host = "a", .kind = "cpu-1", .device = "cpu", .slots = 2}};
    refresh(1);
    JobRecord job;
    job.steps = 1000;
    job.max_workers = 2;
    job.id = store_.add(job);
    jobs_ = store_.jobs(false);
    options_.replan = 10;
    options_.speed = [](const JobRecord&, const std::vector<Measurement>&) {
      struct Even final : Speed {
        Rate rate(const Allocation& a, const WorkerShape&) const override { return {double(workers(a)), 0.5}; }
      };
      return std::make_shared<Even>();
    };
    options_.policy = [this](const Pool& pool) {
      ++plans_;
      pool_ = pool;
      Plan plan;
      for (const Job& j : pool.jobs) plan.decisions.push_back({j.id, give_, {}, "a test wants it"});
      return plan;
    };
  }
  size_t lines(const std::string& what) const {
    size_t count = 0;
    for (const LogLine& line : store_.history(0, 1000)) count += line.what == what;
    return count;
  }
  FakeWorld world_{store_};
  HostBackoff backoff_;
  ProcessTable processes_{store_, world_};
  Placement placement_{inventory_, backoff_, processes_};
  Profiler profiler_{store_};
  SchedulerOptions options_;
  Planner planner_{store_, options_, inventory_, placement_, processes_, profiler_};
  std::vector<JobRecord> jobs_;
  std::vector<Id> give_;
  Pool pool_;
  int plans_ = 0;
};

TEST_F(PoolPlanner, PlansWhenAskedAndEverySoOften) {
  planner_.plan_if_due(jobs_, /*answered=*/false, 1);
  EXPECT_EQ(plans_, 0) << "a source may still name what jobs run on";
  planner_.plan_if_due(jobs_, true, 2);
  planner_.plan_if_due(jobs_, true, 3);
  EXPECT_EQ(plans_, 1);
  planner_.request();
  planner_.plan_if_due(jobs_, true, 4);
  EXPECT_EQ(plans_, 2);
  planner_.plan_if_due(jobs_, true, 14);
  EXPECT_EQ(plans_, 3);
  EXPECT_EQ(lines("waits"), 1u) << "the same decision is logged once";
  EXPECT_EQ(planner_.wanted(), 0);
}

TEST_F(PoolPlanner, KeepsDecisionsAndPredictions) {
  give_ = ids();
  planner_.plan_if_due(jobs_, true, 2);
  ASSERT_NE(planner_.decision(jobs_[0].id), nullptr);
  EXPECT_EQ(planner_.decision(jobs_[0].id)->slots, ids());
  EXPECT_EQ(places_of(*planner_.decision(jobs_[0].id)).size(), 2u);
  EXPECT_TRUE(profiler_.predicted(jobs_[0].id, {{"cpu-1", 2}}, {}));
  EXPECT_EQ(pool_.jobs[0].shapes.size(), 4u) << "one slot a worker or two, with and without recomputation";
  planner_.forget(jobs_[0].id);
  EXPECT_EQ(planner_.decision(jobs_[0].id), nullptr);
}

TEST_F(PoolPlanner, APlanThatBreaksTheRulesChangesNothing) {
  give_ = {ids()[0]};
  planner_.plan_if_due(jobs_, true, 2);
  give_ = {ids()[0], 99};
  planner_.plan_if_due(jobs_, true, 20);
  EXPECT_EQ(planner_.decision(jobs_[0].id)->slots, std::vector<Id>{ids()[0]});
  options_.policy = [](const Pool&) -> Plan { throw Failure("no idea"); };
  planner_.plan_if_due(jobs_, true, 40);
  EXPECT_EQ(planner_.decision(jobs_[0].id)->slots, std::vector<Id>{ids()[0]});
  EXPECT_EQ(lines("plan"), 3u);
}

TEST_F(PoolPlanner, AnExcludedHostIsNotInThePool) {
  for (int i = 0; i < 3; ++i) backoff_.failed("a", 1, 2);
  planner_.plan_if_due(jobs_, true, 3);
  EXPECT_TRUE(pool_.slots.empty());
  planner_.plan_if_due(jobs_, true, 30);
  EXPECT_EQ(pool_.slots.size(), 2u);
}

}  // namespace
}  // namespace elinvar::pool
