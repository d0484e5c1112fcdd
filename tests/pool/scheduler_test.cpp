// The daemon's loop in a fake world, and its reaction to each kind of event.
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
  EXPECT_TRUE(store_.processes.present().empty()) << story();
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

TEST_F(PoolScheduler, WantOfMemoryIsAMeasurement) {
  machines({machine("a", 1)});
  const Id id = submit(100000);
  ticks(10);
  world_.words_of_dead = "train: out of memory: asked for 100 bytes\n";
  world_.kill_worker();
  ticks(1);
  const std::vector<Measurement> measured = store_.measurements.of(id);
  ASSERT_FALSE(measured.empty());
  EXPECT_EQ(measured.front().rate, 0);
  EXPECT_EQ(measured.front().workers, (Allocation{{"cpu-1", 1}}));
  EXPECT_EQ(count("memory", id), 1u);
}

TEST_F(PoolScheduler, WantOfMemoryLeadsToAnotherShape) {
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

TEST_F(PoolScheduler, APredictionIsKeptUntilItCanBeCompared) {
  learns_ = true;
  machines({machine("a", 2)});
  const Id id = submit(100000);
  ticks(60);
  machines({machine("a", 2), machine("b", 2)});
  ticks(60);
  const std::vector<Measurement> measured = store_.measurements.of(id);
  ASSERT_EQ(measured.size(), 2u) << story();
  EXPECT_EQ(measured[0].predicted, 0) << "nothing was known then";
  // From one size the model can only extrapolate; the advisor's tests check its accuracy.
  EXPECT_NEAR(measured[1].predicted, measured[1].rate, 0.3 * measured[1].rate);
  EXPECT_GT(measured[1].predicted_error, 0);
  EXPECT_EQ(count("speed", id), 1u) << story();
  // Another daemon reads the job's present size: this is no prediction, and the earlier prediction stands.
  serve();
  ticks(60);
  const std::vector<Measurement> after = store_.measurements.of(id);
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

TEST_F(PoolScheduler, ASourceThatDoesNotAnswerTakesNothingAway) {
  machines({machine("a", 2)});
  const Id id = submit(100000);
  ticks(10);
  source_->silent = true;
  serve();  // the next daemon has received nothing yet
  ticks(20);
  EXPECT_EQ(world_.running(id).size(), 2u) << story();
  source_->silent = false;
  ticks(10);
  EXPECT_EQ(world_.running(id).size(), 2u) << story();
  EXPECT_EQ(count("trouble"), 1u);
  EXPECT_EQ(count("leave"), 0u) << story();
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
  // A worker that was told to leave earlier, and does not, is killed in time.
  store_.jobs.ask_cancel(id);
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
