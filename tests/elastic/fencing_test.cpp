// The workers that a fence asks, and when all have answered.
#include "elastic/protocol/fencing.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/elastic/coordinated_job.h"

namespace elinvar {
namespace {

using test::CoordinatedJob;
using test::from;
using test::Kinds;
using Answer = Fencing::Answer;
using Phase = JobState::Phase;
using State = Worker::State;

messages::Fenced answer_to(int64_t number, bool active = true) {
  return {.promised = number, .active = active, .loaded = true, .keeps = true};
}

TEST(Fencing, AsksAllThatMayComputeOrCouldGoOn) {
  CoordinatedJob job;
  job.run({1});
  job.add(2, State::leaving);
  job.add(3, State::ready);
  job.add(4, State::receiving);
  job.add(5, State::joining);
  job.state.proposal = CoordinatedJob::generation(2, {1, 5});
  Fencing fencing(job.state);
  fencing.begin("a death", 0);
  EXPECT_EQ(job.state.number, 2);
  EXPECT_EQ(job.state.phase, Phase::fencing);
  EXPECT_FALSE(job.state.proposal);
  for (const PeerId peer : {1, 2, 3, 4, 5}) EXPECT_EQ(fencing.asked(peer), peer != 4) << peer;
  const std::vector<Message> sent = job.sent(3);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].generation, 2);
}

TEST(Fencing, IsCompleteWhenAllHaveAnsweredOrAreGone) {
  CoordinatedJob job;
  job.run({1, 2, 3});
  Fencing fencing(job.state);
  fencing.begin("a death", 0);
  const auto answers = [&](PeerId peer, int64_t number, int64_t step) {
    return fencing.answered(job.state.workers.at(peer), from(peer, 0, step), answer_to(number));
  };
  EXPECT_EQ(answers(1, 1, 4), Answer::ignored) << "to an earlier fence";
  EXPECT_EQ(answers(1, 2, 5), Answer::counts);
  EXPECT_EQ(job.state.workers.at(1).completed, 5);
  EXPECT_EQ(answers(2, 2, 4), Answer::counts);
  EXPECT_FALSE(fencing.complete());
  job.state.workers.erase(3);
  fencing.forget(3);
  EXPECT_TRUE(fencing.complete());
  const Recovery recovery = fencing.recovery();
  EXPECT_EQ(recovery.step, 5);
  EXPECT_EQ(recovery.members, (std::vector<PeerId>{1, 2}));
}

TEST(Fencing, LearnersThatCannotGoOnLearnTheStateAnew) {
  CoordinatedJob job;
  job.run({1, 2, 3});
  job.add(4, State::ready);
  job.add(5, State::leaving);
  Fencing fencing(job.state);
  fencing.begin("a death", 0);
  for (const PeerId peer : {1, 2, 3, 4, 5})
    (void)fencing.answered(job.state.workers.at(peer), from(peer, 0, 5), answer_to(2, /*active=*/peer == 2));
  fencing.return_learners({1});
  const std::map<PeerId, State> after = {
      {1, State::member}, {2, State::member}, {3, State::joining}, {4, State::joining}, {5, State::leaving}};
  for (const auto& [peer, state] : after) {
    EXPECT_EQ(job.state.workers.at(peer).state, state) << peer;
    EXPECT_EQ(fencing.asked(peer), state != State::joining) << "the answer of " << peer << " counts no longer";
  }
}

TEST(Fencing, AGreaterPromiseNeedsAGreaterFence) {
  CoordinatedJob job;
  job.run({1});
  Fencing fencing(job.state);
  fencing.begin("a death", 0);
  EXPECT_EQ(fencing.answered(job.state.workers.at(1), from(1), answer_to(8)), Answer::of_another);
  EXPECT_FALSE(fencing.complete());
  fencing.begin(fencing.reason(), 0);
  EXPECT_EQ(job.state.number, 9);
  EXPECT_EQ(fencing.reason(), "a death");
}

TEST(Fencing, AsksAgainWhoeverHasNotAnswered) {
  CoordinatedJob job({.repeat = 1});
  job.run({1, 2});
  Fencing fencing(job.state);
  fencing.begin("a death", 10);
  (void)fencing.answered(job.state.workers.at(1), from(1), answer_to(2));
  (void)job.sent(0);
  fencing.repeat(11);
  EXPECT_TRUE(job.state.actions.empty());
  fencing.repeat(11.1);
  ASSERT_EQ(job.state.actions.size(), 1u);
  EXPECT_EQ(job.kinds_sent(2), Kinds{"fence"});
  fencing.repeat(12);
  EXPECT_TRUE(job.state.actions.empty()) << "a second after it was asked again";
}

TEST(Fencing, HoldsUntilAnotherFence) {
  CoordinatedJob job;
  job.run({1});
  job.add(3, State::ready);
  Fencing fencing(job.state);
  fencing.begin("a death", 0);
  (void)fencing.answered(job.state.workers.at(3), from(3), answer_to(2, /*active=*/false));
  (void)fencing.answered(job.state.workers.at(1), from(1), answer_to(2));
  EXPECT_TRUE(fencing.any_at_work());
  job.state.workers.erase(1);
  fencing.forget(1);
  EXPECT_FALSE(fencing.any_at_work());
  fencing.hold(1);
  fencing.hold(1);
  EXPECT_EQ(job.count("hold"), 1);
  EXPECT_EQ(job.state.phase, Phase::holding);
  EXPECT_EQ(fencing.answered(job.state.workers.at(3), from(3), answer_to(2)), Answer::ignored);
}

}  // namespace
}  // namespace elinvar
