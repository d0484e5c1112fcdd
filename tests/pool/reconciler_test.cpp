// How processes are adjusted to the allocation of a plan: with the whole scheduler in a fake world, and alone.
#include "tools/pool/daemon/reconciler.h"

#include <gtest/gtest.h>

#include "tests/pool/scene.h"
#include "tests/pool/scheduler_parts.h"

namespace elinvar::pool {
namespace {

using test::Scene;
using test::SchedulerDies;
using State = JobRecord::State;

class PoolReconciler : public testing::Test, protected Scene {
 protected:
  PoolReconciler() : Scene(1) {}
};

TEST_F(PoolReconciler, ANoticeMovesTheJobBeforeTheMachineGoes) {
  machines({{.host = "a", .lease = "1", .kind = "cpu-1", .device = "cpu", .until = now_ + 10000}});
  const Id id = submit(100000, 1, 1);
  ticks(10);
  ASSERT_EQ(world_.running(id).size(), 1u);
  const std::string before = world_.running(id)[0];
  source_->there[0].until = now_ + 30;
  source_->there.push_back(machine("b", 1));
  ticks(20);
  ASSERT_EQ(world_.running(id).size(), 1u) << story();
  EXPECT_NE(world_.running(id)[0], before) << story();
  EXPECT_EQ(world_.starts(id), 1) << "the next one came before it left\n" << story();
  EXPECT_EQ(source_->released, std::set<std::string>{"a"}) << "whoever waits for it need not wait longer";
}

TEST_F(PoolReconciler, ANoticeWithoutAnotherPlaceEndsInACheckpoint) {
  machines({{.host = "a", .lease = "1", .kind = "cpu-1", .device = "cpu", .until = now_ + 10000}});
  const Id id = submit(100000);
  ticks(10);
  const int64_t step = job(id).step;
  source_->there[0].until = now_ + 30;
  ticks(10);
  EXPECT_EQ(job(id).state, State::waiting) << story();
  EXPECT_GE(job(id).step, step);
  EXPECT_EQ(job(id).failures, 0);
  source_->there = {machine("b", 1)};
  ticks(10);
  EXPECT_EQ(world_.running(id).size(), 1u) << story();
}

TEST_F(PoolReconciler, CancelStopsAJobForGood) {
  machines({machine("a", 1)});
  const Id runs = submit(100000, 1, 1), waits = submit(100000, 1, 1);
  ticks(10);
  store_.jobs.ask_cancel(runs);
  store_.jobs.ask_cancel(waits);
  ticks(10);
  EXPECT_EQ(job(runs).state, State::cancelled) << story();
  EXPECT_EQ(job(waits).state, State::cancelled) << story();
  EXPECT_TRUE(store_.processes.present().empty()) << story();
}

// The daemon is killed just after it has started a process, before it could record it.
TEST_F(PoolReconciler, NothingIsStartedTwice) {
  for (int calls = 0; calls < 40; ++calls) {
    const Id id = submit(100);
    machines({machine("a", 1)});
    world_.die_after(calls);
    try {
      ticks(60);
      world_.die_after(-1);
    } catch (const SchedulerDies&) {
      world_.die_after(-1);
      serve();
    }
    for (int i = 0; i < 120 && !job(id).over(); ++i) {
      tick();
      ASSERT_LE(world_.running(id).size(), 1u) << story();
    }
    ASSERT_EQ(job(id).state, State::finished) << story();
    EXPECT_EQ(world_.starts(id), 1) << "after " << calls << " calls\n" << story();
  }
}

TEST_F(PoolReconciler, EachWorkerHasAGpuOfItsOwn) {
  machines({{.host = "a", .kind = "cuda", .device = "cuda", .slots = 3}, machine("b", 1)});
  const Id first = submit(100000, 1, 2), second = submit(100000, 1, 2);
  ticks(10);
  const auto all = [&] {
    std::vector<std::string> devices = world_.devices(first);
    for (const std::string& device : world_.devices(second)) devices.push_back(device);
    std::sort(devices.begin(), devices.end());
    return devices;
  };
  const std::vector<std::string> wanted = {"cpu", "cuda:0", "cuda:1", "cuda:2"};
  EXPECT_EQ(all(), wanted) << story();
  serve();  // another daemon
  for (int i = 0; i < 4; ++i) {
    world_.kill_worker();
    ticks(5);
    EXPECT_EQ(all(), wanted) << story();
  }
  source_->there[0].slots = 2;
  ticks(10);
  EXPECT_EQ(all(), (std::vector<std::string>{"cpu", "cuda:0", "cuda:1"})) << story();
}

// The reconciler alone, with decisions of a policy that the test writes.
class PoolReconciliation : public test::SchedulerParts {
 protected:
  void reconcile(double now) {
    world_.advance(1);
    lifecycle_.load(now);
    processes_.load(now, options_.grace);
    processes_.poll(
        now, [](Id) { return true; }, [&](const ProcessRecord& p) { lifecycle_.process_ended(p, now); });
    for (JobRecord& job : lifecycle_.jobs()) lifecycle_.observe(job, now);
    planner_.request();
    planner_.plan_if_due(lifecycle_.jobs(), true, now);
    for (JobRecord& job : lifecycle_.jobs()) reconciler_.reconcile(job, now);
  }
  size_t workers() { return processes_.workers_of(job_).size(); }
};

TEST_F(PoolReconciliation, StartsACoordinatorThenItsWorkers) {
  give_ = ids();
  reconcile(1);
  EXPECT_NE(processes_.coordinator_of(job_), nullptr);
  EXPECT_EQ(workers(), 0u) << "its endpoint is not known yet";
  reconcile(2);
  EXPECT_EQ(workers(), 2u);
  reconcile(3);
  EXPECT_EQ(workers(), 2u);
  EXPECT_EQ(world_.starts(job_), 1);
}

TEST_F(PoolReconciliation, SendsNoWorkerToACoordinatorThatMayHaveDied) {
  give_ = ids();
  world_.start({"train", "run"}, store_.job_directory(job_) / "coordinator.log");  // started by an unknown process
  for (double now = 1; now < 11; ++now) {
    reconcile(now);
    ASSERT_EQ(workers(), 0u) << "at " << now;
  }
  for (double now = 11; now < 14; ++now) reconcile(now);
  EXPECT_EQ(workers(), 2u) << "it lives";
}

TEST_F(PoolReconciliation, DrainsAWorkerWhoseSlotIsTaken) {
  give_ = ids();
  for (double now = 1; now < 8; ++now) reconcile(now);
  ASSERT_EQ(workers(), 2u);
  give_ = {ids()[0]};
  reconcile(8);
  EXPECT_TRUE(reconciler_.gives_up_workers(job_));
  EXPECT_EQ(workers(), 2u) << "it was asked to leave";
  for (double now = 9; now < 14; ++now) reconcile(now);
  EXPECT_EQ(workers(), 1u);
  EXPECT_FALSE(reconciler_.gives_up_workers(job_));
}

TEST_F(PoolReconciliation, NothingGivenIsAStopWithACheckpoint) {
  options_.turn = 0;
  give_ = ids();
  for (double now = 1; now < 8; ++now) reconcile(now);
  give_ = {};
  reconcile(8);
  EXPECT_GT(store_.jobs.find(job_)->stopping, 0);
  for (double now = 9; now < 14; ++now) reconcile(now);
  EXPECT_EQ(workers(), 0u);
  EXPECT_EQ(store_.jobs.find(job_)->state, State::waiting);
  EXPECT_EQ(store_.jobs.find(job_)->failures, 0);
}

TEST_F(PoolReconciliation, NoWorkerIsStartedOnAHostThatBacksOff) {
  give_ = ids();
  reconcile(1);
  backoff_.failed("a", job_, 1);
  reconcile(2);
  EXPECT_EQ(workers(), 0u);
  reconcile(4);
  EXPECT_EQ(workers(), 2u);
}

}  // namespace
}  // namespace elinvar::pool
