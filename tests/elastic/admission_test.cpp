// Admission: which workers are admitted to a job, refused, and remembered.
#include "elastic/protocol/admission.h"

#include <gtest/gtest.h>

#include "tests/elastic/coordinated_job.h"

namespace elinvar {
namespace {

using test::CoordinatedJob;
using test::from;
using test::Kinds;
using Phase = JobState::Phase;
using State = Worker::State;

messages::Hello hello_of(PeerId peer) { return {.about = {.endpoint = "at " + std::to_string(peer)}}; }

messages::Hello member_hello(PeerId peer) {
  messages::Hello hello = hello_of(peer);
  hello.active = hello.loaded = true;
  hello.id = static_cast<int>(peer);
  return hello;
}

TEST(Admission, RefusesWhatTheWorldRefuses) {
  CoordinatedJob job;
  Admission admission(job.state, 0);
  job.world.refusal = "its data are others";
  EXPECT_EQ(admission.hello(from(7), hello_of(7), 1), Admission::Arrival::refused);
  EXPECT_TRUE(job.state.workers.empty());
  const std::vector<Message> sent = job.sent(7);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].as<messages::Refused>()->reason, "its data are others");
  EXPECT_FALSE(sent[0].as<messages::Refused>()->again);
}

TEST(Admission, TellsWorkersWhichStateTheRunBeginsWith) {
  CoordinatedJob job({.steps = 10}, /*first_step=*/4);
  Admission admission(job.state, 0);
  EXPECT_EQ(admission.hello(from(7), hello_of(7), 1), Admission::Arrival::newcomer);
  EXPECT_EQ(job.sent(7).at(0).as<messages::Welcome>()->restore, 4);
  messages::Hello loaded = hello_of(8);
  loaded.loaded = true;
  EXPECT_EQ(admission.hello(from(8, 0, 3), loaded, 1), Admission::Arrival::newcomer) << "an earlier state";
  EXPECT_EQ(admission.hello(from(8, 0, 4), loaded, 1), Admission::Arrival::starter);
  EXPECT_EQ(job.state.workers.at(8).state, State::ready);
  job.state.first_step = 2;
  (void)job.sent(7);
  admission.restore_all();
  EXPECT_EQ(job.sent(7).at(0).as<messages::Welcome>()->restore, 2);
}

// Two workers that have made the same number of steps may have different states.
TEST(Admission, WithAdaptiveScalingNobodyHasTheFirstStateYet) {
  CoordinatedJob job({.steps = 10, .scaling = {.batch = 8, .batch_max = 8}}, /*first_step=*/4);
  Admission admission(job.state, 0);
  messages::Hello loaded = hello_of(8);
  loaded.loaded = true;
  EXPECT_EQ(admission.hello(from(8, 0, 4), loaded, 1), Admission::Arrival::newcomer);
}

// Who received the state from members has the parameters, but no bucket of the optimizer's state.
TEST(Admission, WithShardedStateWhoHasTheFirstStateIsToldToRestoreIt) {
  CoordinatedJob job({.steps = 10, .arrangement = {.zero = 1}}, /*first_step=*/4);
  Admission admission(job.state, 0);
  messages::Hello loaded = hello_of(8);
  loaded.loaded = true;
  loaded.about.zero = 1;
  EXPECT_EQ(admission.hello(from(8, 0, 4), loaded, 1), Admission::Arrival::newcomer);
  EXPECT_EQ(job.sent(8).at(0).as<messages::Welcome>()->restore, 4);
}

TEST(Admission, TakesMembersOfThePresentGenerationAlone) {
  CoordinatedJob job;
  job.run({1, 2});
  job.state.current->follows = 4;
  job.state.current->number = 5;
  Admission admission(job.state, 0);
  EXPECT_EQ(admission.hello(from(3, 4), member_hello(3), 1), Admission::Arrival::refused);
  EXPECT_TRUE(job.sent(3).at(0).as<messages::Refused>()->again) << "it may learn the state as a new worker";
  // A new coordinator does not know yet whether the planned change took place.
  job.state.phase = Phase::gathering;
  messages::Hello hello = member_hello(3);
  hello.promised = 9;
  hello.learners = {{2, "known"}, {6, "at 6"}};
  EXPECT_EQ(admission.hello(from(3, 4, 5), hello, 2), Admission::Arrival::member);
  const Worker& worker = job.state.workers.at(3);
  EXPECT_EQ(worker.state, State::member);
  EXPECT_EQ(worker.completed, 5);
  EXPECT_EQ(worker.seen, 2);
  EXPECT_EQ(job.state.number, 9) << "no fence may have a number that it has promised";
  EXPECT_EQ(job.state.next_id, 4);
  const std::vector<Action> actions = std::exchange(job.state.actions, {});
  std::vector<PeerId> called;
  for (const Action& a : actions)
    if (a.message.as<messages::NewCoordinator>()) called.push_back(a.peer);
  EXPECT_EQ(called, test::Peers{6});
}

TEST(Admission, ALearnerThatIntroducesItselfAgainKeepsWhatItHas) {
  CoordinatedJob job;
  job.run({1});
  Admission admission(job.state, 0);
  messages::Hello hello = hello_of(7);
  hello.warm = true;
  EXPECT_EQ(admission.hello(from(7), hello, 1), Admission::Arrival::newcomer);
  job.state.workers.at(7).state = State::receiving;
  EXPECT_EQ(admission.hello(from(7), hello, 2), Admission::Arrival::known);
  hello.ready = true;
  EXPECT_EQ(admission.hello(from(7), hello, 3), Admission::Arrival::caught_up);
  EXPECT_EQ(job.state.workers.at(7).state, State::receiving);
  EXPECT_EQ(job.count("hello"), 1);
}

TEST(Admission, RemembersWhoIsGoneAndWhoMayComeBack) {
  CoordinatedJob job;
  job.run({1, 2, 3, 4});
  job.state.workers.at(3).draining = true;
  Admission admission(job.state, 0);
  EXPECT_EQ(admission.remove(1, "killed").id, 1);
  admission.expel(2, "guilty", /*guilty=*/true);
  EXPECT_EQ(job.world.evicted, test::Peers{2});
  EXPECT_FALSE(job.sent(2).at(0).as<messages::Release>()->again);
  (void)admission.remove(2, "guilty");
  (void)admission.remove(3, "killed");
  EXPECT_EQ(admission.dismiss(4).id, 4);
  EXPECT_EQ(job.sent(4).at(0).as<messages::Release>()->what, "left");
  EXPECT_TRUE(job.state.workers.empty());
  for (const PeerId peer : {1, 2, 3, 4}) {
    EXPECT_EQ(admission.hello(from(peer), hello_of(peer), 1), Admission::Arrival::refused);
    EXPECT_EQ(job.sent(peer).at(0).as<messages::Refused>()->again, peer == 1) << peer;
    admission.turn_away(peer);
    EXPECT_EQ(job.state.actions.at(0).what, Action::What::connect) << "its connection may be closed";
    EXPECT_EQ(job.state.actions.at(0).endpoint, "at " + std::to_string(peer));
    EXPECT_EQ(job.sent(peer).at(0).as<messages::Release>()->again, peer == 1) << peer;
  }
}

TEST(Admission, NobodyLeavesWithWhatOthersNeed) {
  CoordinatedJob job;
  job.run({1});
  Admission admission(job.state, 0);
  const auto may = [&](State state) { return admission.may_leave(job.add(7, state)); };
  EXPECT_TRUE(may(State::joining));
  EXPECT_TRUE(may(State::ready));
  EXPECT_FALSE(may(State::member));
  EXPECT_FALSE(may(State::leaving));
  job.state.proposal = CoordinatedJob::generation(2, {1, 7});
  EXPECT_FALSE(may(State::ready)) << "it is about to be a member";
  job.state.proposal.reset();
  job.state.phase = Phase::holding;
  EXPECT_TRUE(may(State::receiving));
  EXPECT_FALSE(may(State::ready)) << "it has the state";
}

TEST(Admission, GathersMembersOrWaitsLongEnough) {
  CoordinatedJob job({.gather_timeout = 3});
  job.state.current = CoordinatedJob::generation(1, {1, 2});
  const Admission admission(job.state, 10);
  job.add(1);
  EXPECT_FALSE(admission.gathered(12.9));
  EXPECT_TRUE(admission.gathered(13));
  job.add(2);
  EXPECT_TRUE(admission.gathered(10));
}

}  // namespace
}  // namespace elinvar
