// The daemon's loop in a fake world: what it does about each thing that can happen.
#include "tools/pool/daemon/scheduler.h"

#include <gtest/gtest.h>

#include "tests/pool/scene.h"

namespace elinvar::pool {
namespace {

using test::Scene;
using test::SchedulerDies;
using State = JobRecord::State;

class PoolScheduler : public testing::Test, protected Scene {
 protected:
  PoolScheduler() : Scene(1) {}
};

TEST_F(PoolScheduler, TrainsAJobToItsEnd) {
  machines({machine("a", 2)});
  const Id id = submit(100);
  ticks(40);
  EXPECT_EQ(job(id).state, State::finished) << story();
  EXPECT_EQ(job(id).step, 100);
  EXPECT_EQ(job(id).digest, "d1");
  EXPECT_EQ(world_.starts(id), 1);
  EXPECT_TRUE(store_.processes().empty()) << story();
}

TEST_F(PoolScheduler, SharesSlotsAndGivesThemBack) {
  machines({machine("a", 4)});
  const Id first = submit(100000);
  ticks(10);
  EXPECT_EQ(world_.running(first).size(), 4u) << story();
  const Id second = submit(100);
  ticks(40);
  EXPECT_GE(world_.running(second).size() + (job(second).state == State::finished), 1u) << story();
  ticks(120);
  EXPECT_EQ(job(second).state, State::finished) << story();
  EXPECT_EQ(world_.running(first).size(), 4u) << "what it gave away comes back\n" << story();
  EXPECT_EQ(world_.starts(first), 1) << "it never stood still";
}

TEST_F(PoolScheduler, AWorkerThatDiesIsReplaced) {
  machines({machine("a", 2)});
  const Id id = submit(100000);
  ticks(10);
  world_.kill_worker();
  ticks(10);
  EXPECT_EQ(world_.running(id).size(), 2u) << story();
  EXPECT_EQ(count("lost", id), 1u);
  EXPECT_EQ(world_.starts(id), 1);
}

TEST_F(PoolScheduler, ACoordinatorIsLeftToItsWorkers) {
  machines({machine("a", 2)});
  const Id id = submit(100000);
  ticks(10);
  world_.kill_coordinator(id);
  ticks(15);
  EXPECT_TRUE(world_.coordinated(id));
  EXPECT_EQ(world_.starts(id), 1) << "one of them has taken over\n" << story();
  EXPECT_EQ(job(id).state, State::running);
}

TEST_F(PoolScheduler, AJobWhoseEveryProcessDiesStartsAgain) {
  machines({machine("a", 2)});
  const Id id = submit(100000);
  ticks(30);
  world_.kill_all_of(id);
  ticks(20);
  EXPECT_EQ(world_.starts(id), 2) << story();
  EXPECT_EQ(job(id).state, State::running);
  EXPECT_EQ(job(id).failures, 1);
}

TEST_F(PoolScheduler, AJobThatNeverGetsAStepFurtherFails) {
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

TEST_F(PoolScheduler, AConfigurationThatNoWorkerAcceptsFailsAtOnce) {
  machines({machine("a", 2)});
  world_.fails_at_once = 2;
  world_.words_of_dead = "train: there is no folder data/nowhere\n";
  const Id id = submit(1000);
  ticks(10);
  EXPECT_EQ(job(id).state, State::failed) << story();
  EXPECT_NE(job(id).reason.find("there is no folder data/nowhere"), std::string::npos) << job(id).reason;
  ticks(10);
  EXPECT_TRUE(store_.processes().empty());
}

constexpr const char* kLostLedger =
    "train: cannot resume run: no checkpoint is good\n"
    "  checkpoint of step 300 cannot be used: ledger.jsonl ends at step 0\n";

TEST_F(PoolScheduler, AJobWhoseLedgerIsLostFailsAtOnce) {
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

TEST_F(PoolScheduler, AHostIsNotBlamedForALostLedger) {
  machines({machine("a", 2)});
  world_.fails_at_once = 3;
  world_.words_of_dead = kLostLedger;
  const Id id = submit(1000);
  ticks(10);
  EXPECT_EQ(job(id).state, State::failed) << story();
  EXPECT_NE(job(id).reason.find("ledger.jsonl"), std::string::npos) << job(id).reason;
  EXPECT_EQ(count("rest"), 0u) << story();
}

TEST_F(PoolScheduler, ACheckpointThatCannotBeReadIsTriedAgain) {
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

TEST_F(PoolScheduler, AHostWhereWorkersDoNotLiveRests) {
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

TEST_F(PoolScheduler, AJobWhoseWorkersDoNotLiveDisturbsNoOther) {
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

TEST_F(PoolScheduler, AJobWhoseWorkersLiveNowhereFails) {
  machines({machine("a", 1)});
  world_.fails_at_once = 3;
  const Id id = submit(1000);
  ticks(400);
  EXPECT_EQ(job(id).state, State::failed) << story();
}

TEST_F(PoolScheduler, WantOfMemoryIsAMeasurement) {
  machines({machine("a", 1)});
  const Id id = submit(100000);
  ticks(10);
  world_.words_of_dead = "train: out of memory: asked for 100 bytes\n";
  world_.kill_worker();
  ticks(1);
  const std::vector<Measurement> measured = store_.measurements(id);
  ASSERT_FALSE(measured.empty());
  EXPECT_EQ(measured.front().rate, 0);
  EXPECT_EQ(measured.front().workers, (Allocation{{"cpu-1", 1}}));
  EXPECT_EQ(count("memory", id), 1u);
}

TEST_F(PoolScheduler, WantOfMemoryLeadsToAnotherForm) {
  learns_ = true;
  machines({machine("a", 2)});
  const Id id = submit(100000);
  ticks(30);
  ASSERT_EQ(world_.running(id).size(), 2u);
  ASSERT_FALSE(job(id).shape.recompute);
  world_.words_of_dead = "train: out of memory: asked for 100 bytes\n";
  world_.kill_worker();
  ticks(60);
  EXPECT_TRUE(job(id).shape.recompute) << story();
  EXPECT_EQ(job(id).state, State::running) << story();
  EXPECT_EQ(world_.running(id).size(), 2u) << story();
}

TEST_F(PoolScheduler, APromiseIsRememberedUntilItCanBeCompared) {
  learns_ = true;
  machines({machine("a", 2)});
  const Id id = submit(100000);
  ticks(60);
  machines({machine("a", 2), machine("b", 2)});
  ticks(60);
  const std::vector<Measurement> measured = store_.measurements(id);
  ASSERT_EQ(measured.size(), 2u) << story();
  EXPECT_EQ(measured[0].predicted, 0) << "nothing was known then";
  // From one size the model can only extrapolate; how well it does is the advisor's tests to say.
  EXPECT_NEAR(measured[1].predicted, measured[1].rate, 0.3 * measured[1].rate);
  EXPECT_GT(measured[1].predicted_error, 0);
  EXPECT_EQ(count("speed", id), 1u) << story();
  // Another daemon finds what the job has: that is no prediction, and the one that was made stands.
  serve();
  ticks(60);
  const std::vector<Measurement> after = store_.measurements(id);
  ASSERT_EQ(after.size(), 2u) << story();
  EXPECT_GT(after[1].seconds, measured[1].seconds);
  EXPECT_EQ(after[1].predicted, measured[1].predicted);
  EXPECT_EQ(after[1].predicted_error, measured[1].predicted_error);
  EXPECT_EQ(count("speed", id), 1u) << story();
}

TEST_F(PoolScheduler, AnEndThatNobodySawTellsNothingOfWhatEndsTake) {
  machines({machine("a", 4)});
  const Id seen = submit(100);
  ticks(200);
  ASSERT_EQ(job(seen).state, State::finished) << story();
  EXPECT_GT(job(seen).costs.finish, 0);
  const Id unseen = submit(1000);
  ticks(30);
  ASSERT_EQ(job(unseen).state, State::running) << story();
  for (int i = 0; i < 3600; ++i) world_.advance(1);
  now_ += 3600;
  serve();
  ticks(30);
  ASSERT_EQ(job(unseen).state, State::finished) << story();
  EXPECT_EQ(job(unseen).costs.finish, 0);
}

TEST_F(PoolScheduler, ANoticeMovesTheJobBeforeTheMachineGoes) {
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

TEST_F(PoolScheduler, ANoticeWithoutAnotherPlaceEndsInACheckpoint) {
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

TEST_F(PoolScheduler, CancelStopsAJobForGood) {
  machines({machine("a", 1)});
  const Id runs = submit(100000, 1, 1), waits = submit(100000, 1, 1);
  ticks(10);
  store_.ask_cancel(runs);
  store_.ask_cancel(waits);
  ticks(10);
  EXPECT_EQ(job(runs).state, State::cancelled) << story();
  EXPECT_EQ(job(waits).state, State::cancelled) << story();
  EXPECT_TRUE(store_.processes().empty()) << story();
}

TEST_F(PoolScheduler, TheNextDaemonFindsWhatRuns) {
  machines({machine("a", 2)});
  const Id id = submit(100000);
  ticks(10);
  const std::vector<std::string> before = world_.running(id);
  world_.advance(30);
  now_ += 30;
  serve();
  ticks(10);
  EXPECT_EQ(world_.running(id), before) << story();
  EXPECT_EQ(world_.starts(id), 1);
}

// Killed just after it has started a process, before it could write down which.
TEST_F(PoolScheduler, NothingIsStartedTwice) {
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

TEST_F(PoolScheduler, ASourceThatDoesNotAnswerTakesNothingAway) {
  machines({machine("a", 2)});
  const Id id = submit(100000);
  ticks(10);
  source_->silent = true;
  serve();  // the next daemon has heard nothing yet
  ticks(20);
  EXPECT_EQ(world_.running(id).size(), 2u) << story();
  source_->silent = false;
  ticks(10);
  EXPECT_EQ(world_.running(id).size(), 2u) << story();
  EXPECT_EQ(count("trouble"), 1u);
  EXPECT_EQ(count("leave"), 0u) << story();
}

TEST_F(PoolScheduler, EachWorkerHasAGpuOfItsOwn) {
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

TEST_F(PoolScheduler, TheTroubleOfOneJobHoldsUpNoOther) {
  machines({machine("a", 2)});
  const Id first = submit(100000, 1, 1);
  ticks(5);
  world_.unreadable = first;
  const Id second = submit(100, 1, 1);
  ticks(80);
  EXPECT_EQ(job(second).state, State::finished) << story();
  EXPECT_EQ(count("trouble", first), 1u) << "it is told once\n" << story();
  world_.unreadable = 0;
  ticks(5);
  EXPECT_GT(job(first).step, 100) << story();
}

TEST_F(PoolScheduler, AClockThatIsSetBackHoldsUpNobody) {
  now_ = 1e9;
  machines({machine("a", 2)});
  const Id id = submit(100000);
  ticks(10);
  world_.kill_all_of(id);
  ticks(2);
  EXPECT_GT(job(id).retry_at, now_) << story();
  now_ -= 1e6;
  ticks(15);
  EXPECT_EQ(world_.starts(id), 2) << story();
  const Id second = submit(100);
  ticks(30);
  EXPECT_FALSE(world_.running(second).empty()) << "the first one's turn is over\n" << story();
  // A worker that was told to leave before, and does not, is killed in time.
  store_.ask_cancel(id);
  now_ += 1e6;
  tick();
  now_ -= 1e6;
  ticks(20);
  EXPECT_EQ(job(id).state, State::cancelled) << story();
}

TEST_F(PoolScheduler, MachinesAreWantedAsLongAsJobsCouldUseThem) {
  machines({machine("a", 1)});
  ticks(2);
  EXPECT_EQ(source_->last_wanted, 0);
  submit(100000, 1, 4);
  ticks(3);
  EXPECT_EQ(source_->last_wanted, 3);
}

}  // namespace
}  // namespace elinvar::pool
