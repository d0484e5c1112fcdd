// The recording of facts, and when members hear that facts are on file.
#include "elastic/protocol/facts_on_file.h"

#include <gtest/gtest.h>

#include "tests/elastic/coordinated_job.h"

namespace elinvar {
namespace {

using test::CoordinatedJob;
using test::Kinds;

TEST(FactsOnFile, AreConfirmedManyAtOnceOrAfterAWhile) {
  CoordinatedJob job;
  job.run({1});
  job.add(2, Worker::State::leaving);
  job.add(3, Worker::State::receiving);
  FactsOnFile facts(job.state);
  EXPECT_TRUE(facts.take({{.step = 0}}, 2));
  EXPECT_EQ(job.kinds_sent(1), Kinds{"ack"}) << "the first for long";
  for (int64_t step = 1; step < 32; ++step) (void)facts.take({{.step = step}}, 2.1);
  EXPECT_TRUE(job.state.actions.empty());
  (void)facts.take({{.step = 32}}, 2.1);
  ASSERT_EQ(job.state.actions.size(), 2u) << "to the member and the leaver";
  EXPECT_EQ(job.sent(2).at(0).step, 32);
  (void)facts.take({{.step = 33}}, 3.9);
  EXPECT_TRUE(job.state.actions.empty());
  (void)facts.take({{.step = 33}}, 4.1);
  EXPECT_EQ(job.sent(1).at(0).step, 33);
  EXPECT_EQ(facts.on_file(), 33);
}

// A resumed run has more on file. A leader that gathers facts of those steps would not report them any more.
TEST(FactsOnFile, ThatNobodyHasToldAreNotConfirmed) {
  CoordinatedJob job({.steps = 100}, /*first_step=*/5);
  job.run({1});
  job.world.on_file = 9;
  FactsOnFile facts(job.state);
  EXPECT_EQ(facts.on_file(), 4);
  (void)facts.take({{.step = 6}}, 2);
  EXPECT_EQ(job.sent(1).at(0).step, 6);
  EXPECT_EQ(facts.on_file(), 9);
}

// Facts after a gap are not confirmed either.
TEST(FactsOnFile, BehindAGapAreNotConfirmed) {
  CoordinatedJob job;
  job.run({1});
  FactsOnFile facts(job.state);
  EXPECT_TRUE(facts.write({{.step = 2}}));
  EXPECT_TRUE(job.state.actions.empty()) << "of a worker that is gone";
  job.world.on_file = 3;
  (void)facts.take({}, 2);
  EXPECT_TRUE(job.state.actions.empty());
}

TEST(FactsOnFile, TellOfTheLastStepAndOfStatesThatAgree) {
  CoordinatedJob job({.steps = 10});
  job.run({1});
  FactsOnFile facts(job.state);
  (void)facts.take({{.step = 4, .state = Digest{1, 1}}, {.step = 5}}, 0);
  EXPECT_EQ(facts.agreed_state(), 4);
  EXPECT_FALSE(facts.last_told());
  (void)facts.take({{.step = 10}}, 0);
  EXPECT_TRUE(facts.last_told());
}

TEST(FactsOnFile, AreNotConfirmedOnceThereIsALaterCoordinator) {
  CoordinatedJob job;
  job.run({1});
  FactsOnFile facts(job.state);
  job.world.later_term = true;
  EXPECT_FALSE(facts.take({{.step = 0}}, 2));
  EXPECT_TRUE(job.state.actions.empty());
  ASSERT_TRUE(job.state.ending);
  EXPECT_EQ(job.state.ending->what, "superseded");
}

}  // namespace
}  // namespace elinvar
