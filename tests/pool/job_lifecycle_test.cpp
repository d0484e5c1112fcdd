// Transitions between the states of jobs: with the whole scheduler in a fake world, and alone.
#include "tools/pool/daemon/job_lifecycle.h"

#include <gtest/gtest.h>

#include "tests/pool/scene.h"
#include "tests/pool/scheduler_parts.h"

namespace elinvar::pool {
namespace {

using test::Scene;
using State = JobRecord::State;

class PoolJobLifecycle : public testing::Test, protected Scene {
 protected:
  PoolJobLifecycle() : Scene(1) {}
};

constexpr const char* kLostLedger =
    "train: cannot resume run: no checkpoint is good\n"
    "  checkpoint of step 300 cannot be used: ledger.jsonl ends at step 0\n";

TEST_F(PoolJobLifecycle, AJobWhoseEveryProcessDiesStartsAgain) {
  machines({machine("a", 2)});
  const Id id = submit(100000);
  ticks(30);
  world_.kill_all_of(id);
  ticks(20);
  EXPECT_EQ(world_.starts(id), 2) << story();
  EXPECT_EQ(job(id).state, State::running);
  EXPECT_EQ(job(id).failures, 1);
}

TEST_F(PoolJobLifecycle, AJobThatNeverGetsAStepFurtherFails) {
  machines({machine("a", 1)});
  world_.steps_a_second = 0;
  const Id id = submit(1000);
  for (int i = 0; i < 400 && !job(id).over(); ++i) {
    ticks(3);
    world_.kill_all_of(id);
  }
  EXPECT_EQ(job(id).state, State::failed) << story();
  EXPECT_EQ(world_.starts(id), 5);
  EXPECT_NE(job(id).reason.find("5 failures without a step"), std::string::npos) << job(id).reason;
}

TEST_F(PoolJobLifecycle, AConfigurationThatNoWorkerAcceptsFailsAtOnce) {
  machines({machine("a", 2)});
  world_.fails_at_once = 2;
  world_.words_of_dead = "train: there is no folder data/nowhere\n";
  const Id id = submit(1000);
  ticks(10);
  EXPECT_EQ(job(id).state, State::failed) << story();
  EXPECT_NE(job(id).reason.find("there is no folder data/nowhere"), std::string::npos) << job(id).reason;
  ticks(10);
  EXPECT_TRUE(store_.processes.present().empty());
}

TEST_F(PoolJobLifecycle, AJobWhoseLedgerIsLostFailsAtOnce) {
  machines({machine("a", 2)});
  const Id id = submit(100000);
  ticks(10);
  world_.kill_all_of(id);
  ticks(2);
  ASSERT_EQ(job(id).state, State::waiting) << story();
  world_.coordinator_fails = 3;
  world_.words_of_dead = kLostLedger;
  ticks(10);
  EXPECT_EQ(job(id).state, State::failed) << story();
  EXPECT_NE(job(id).reason.find("ledger.jsonl ends at step 0"), std::string::npos) << job(id).reason;
  EXPECT_EQ(world_.starts(id), 2) << "it was resumed once";
  EXPECT_EQ(count("rest"), 0u) << story();
}

TEST_F(PoolJobLifecycle, AHostIsNotBlamedForALostLedger) {
  machines({machine("a", 2)});
  world_.fails_at_once = 3;
  world_.words_of_dead = kLostLedger;
  const Id id = submit(1000);
  ticks(10);
  EXPECT_EQ(job(id).state, State::failed) << story();
  EXPECT_NE(job(id).reason.find("ledger.jsonl"), std::string::npos) << job(id).reason;
  EXPECT_EQ(count("rest"), 0u) << story();
}

TEST_F(PoolJobLifecycle, ACheckpointThatCannotBeReadIsTriedAgain) {
  machines({machine("a", 2)});
  const Id id = submit(100000);
  ticks(10);
  world_.kill_all_of(id);
  world_.coordinator_fails = 3;
  world_.words_of_dead =
      "train: cannot resume run: no checkpoint is good\n  checkpoint of step 300: Input/output error\n";
  ticks(10);
  EXPECT_EQ(job(id).state, State::waiting) << story();
  world_.coordinator_fails.reset();
  ticks(30);
  EXPECT_EQ(job(id).state, State::running) << story();
}

TEST_F(PoolJobLifecycle, AHostWhereWorkersFailToStartBacksOff) {
  machines({machine("a", 1)});
  const Id id = submit(100000);
  ticks(5);
  world_.fails_at_once = 3;
  world_.kill_worker();
  ticks(60);
  EXPECT_FALSE(job(id).over()) << story();
  EXPECT_LT(count("lost", id), 8u) << "the pauses grow";
  world_.fails_at_once.reset();
  ticks(70);
  EXPECT_EQ(world_.running(id).size(), 1u) << story();
}

TEST_F(PoolJobLifecycle, AJobWhoseWorkersFailToStartDisturbsNoOther) {
  machines({machine("a", 3)});
  const Id good = submit(100000);
  ticks(5);
  world_.fails_at_once = 3;
  world_.fails_of = good + 1;
  const Id broken = submit(1000);
  ticks(120);
  EXPECT_EQ(job(broken).state, State::failed) << story();
  EXPECT_EQ(count("stop", good), 0u) << story();
  EXPECT_EQ(world_.starts(good), 1);
  EXPECT_GE(world_.running(good).size(), 2u) << "it may grow into what is free again\n" << story();
}

TEST_F(PoolJobLifecycle, AJobWhoseWorkersStartNowhereFails) {
  machines({machine("a", 1)});
  world_.fails_at_once = 3;
  const Id id = submit(1000);
  ticks(400);
  EXPECT_EQ(job(id).state, State::failed) << story();
}

// The lifecycle alone, with a coordinator and a worker in a fake world.
class PoolJobStates : public test::SchedulerParts {
 protected:
  PoolJobStates() {
    lifecycle_.load(1);
    launch(/*coordinator=*/true);
    launch(/*coordinator=*/false);
    job().state = State::running;
    store_.jobs.save(job());
  }
  JobRecord& job() { return lifecycle_.jobs().at(0); }
  void look(double now) {
    processes_.poll(
        now, [](Id) { return true; }, [&](const ProcessRecord& p) { lifecycle_.process_ended(p, now); });
    lifecycle_.observe(job(), now);
  }
};

TEST_F(PoolJobStates, ProgressAndWorkersGoOnFile) {
  world_.advance(10);
  look(11);
  EXPECT_EQ(job().state, State::running);
  EXPECT_GT(store_.jobs.find(job().id)->step, 0);
  EXPECT_TRUE(processes_.workers_of(job().id)[0]->registered);
}

TEST_F(PoolJobStates, EachFailureWithoutProgressWaitsLonger) {
  lifecycle_.fail_once(job(), "no disk", 10);
  EXPECT_EQ(job().state, State::waiting);
  EXPECT_EQ(job().retry_at, 12);
  EXPECT_NE(job().reason.find("no disk"), std::string::npos);
  lifecycle_.fail_once(job(), "no disk", 20);
  EXPECT_EQ(job().retry_at, 24);
  job().step = 50;
  lifecycle_.fail_once(job(), "no disk", 30);
  EXPECT_EQ(job().retry_at, 32) << "there was progress";
  for (int i = 0; i < 4; ++i) lifecycle_.fail_once(job(), "no disk", 40);
  EXPECT_EQ(job().state, State::failed);
  lifecycle_.drop_ended_jobs();
  EXPECT_TRUE(lifecycle_.jobs().empty());
}

TEST_F(PoolJobStates, TimesOnFileThatLieAheadAreSetRight) {
  job().since = 5000;
  job().retry_at = 5000;
  store_.jobs.save(job());
  lifecycle_.clock_was_set_back();
  lifecycle_.load(100);
  EXPECT_EQ(job().since, 100);
  EXPECT_EQ(job().retry_at, 100);
}

}  // namespace
}  // namespace elinvar::pool
