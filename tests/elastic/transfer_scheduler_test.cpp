// Which members send a learner the state, and when a transfer begins again.
#include "elastic/protocol/transfer_scheduler.h"

#include <gtest/gtest.h>

#include "tests/elastic/coordinated_job.h"

namespace elinvar {
namespace {

using test::CoordinatedJob;
using test::Kinds;
using Phase = JobState::Phase;
using State = Worker::State;

struct TransfersToLearners : testing::Test {
  CoordinatedJob job;
  FactsOnFile facts{job.state};
  Fencing fencing{job.state};
  TransferScheduler transfers{job.state, facts, fencing};

  Worker& learner(PeerId peer) {
    Worker& worker = job.add(peer, State::joining);
    worker.warm = true;
    return worker;
  }
  messages::SendState request_to(PeerId member) {
    for (const Message& m : job.sent(member))
      if (const auto* request = m.as<messages::SendState>()) return *request;
    return {};
  }
};

TEST_F(TransfersToLearners, EachMemberSendsAPartOfTheStateSomeStepsAhead) {
  job.run({1, 2});
  job.state.workers.at(1).draining = true;
  job.state.workers.at(2).completed = 5;
  learner(7);
  EXPECT_TRUE(transfers.serve().empty());
  std::vector<std::pair<PeerId, Message>> requests;
  for (const Action& a : std::exchange(job.state.actions, {}))
    if (a.message.as<messages::SendState>()) requests.emplace_back(a.peer, a.message);
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].first, 2u) << "the first also passes the results on: not one that leaves";
  const auto* first = requests[0].second.as<messages::SendState>();
  EXPECT_TRUE(first->copies);
  EXPECT_EQ(first->peer, 7u);
  EXPECT_EQ(first->part, 0);
  EXPECT_EQ(first->parts, 2);
  EXPECT_EQ(requests[0].second.step, 7);
  EXPECT_FALSE(requests[1].second.as<messages::SendState>()->copies);
  EXPECT_EQ(job.state.workers.at(7).state, State::receiving);
  EXPECT_TRUE(transfers.caught_up(job.state.workers.at(7), first->attempt));
}

TEST_F(TransfersToLearners, AMissedStepIsPutOffFurtherInAnotherAttempt) {
  job.run({1});
  Worker& worker = learner(7);
  (void)transfers.serve();
  const int64_t first = request_to(1).attempt;
  transfers.missed(7);
  EXPECT_EQ(worker.state, State::joining);
  (void)transfers.serve();
  const std::vector<Message> sent = job.sent(1);
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_TRUE(sent[0].as<messages::StopSending>());
  EXPECT_EQ(sent[1].step, 4);
  EXPECT_FALSE(transfers.caught_up(worker, first));
  EXPECT_TRUE(transfers.caught_up(worker, first + 1));
}

TEST_F(TransfersToLearners, WaitUntilALearnerIsWarmUnlessNobodyCanGoOnWithoutIt) {
  job.run({1, 2});
  Worker& worker = learner(7);
  worker.warm = false;
  (void)transfers.serve();
  (void)transfers.serve();
  EXPECT_EQ(job.kinds_sent(7), Kinds{"welcome"});
  EXPECT_EQ(worker.state, State::joining);
  transfers.introduced(7);
  (void)transfers.serve();
  EXPECT_EQ(job.kinds_sent(7), Kinds{"welcome"}) << "it has introduced itself anew";
  // Only one of the fenced members has the newest state, and it sends that state unchanged.
  fencing.begin("a death", 0);
  job.state.workers.at(2).completed = 5;
  fencing.hold(1);
  (void)job.sent(0);
  (void)transfers.serve();
  for (const Action& a : job.state.actions)
    if (a.message.as<messages::SendState>()) {
      EXPECT_EQ(a.peer, 2u);
      EXPECT_EQ(a.message.step, 5);
    }
  EXPECT_EQ(worker.state, State::receiving);
}

TEST_F(TransfersToLearners, NoneBeginsAfterTheLastStep) {
  job.run({1});
  Worker& worker = learner(7);
  job.state.workers.at(1).completed = 101;
  (void)transfers.serve();
  EXPECT_EQ(worker.state, State::joining);
  job.state.workers.at(1).completed = 5;
  (void)facts.take({{.step = 100}}, 0);
  (void)transfers.serve();
  EXPECT_EQ(worker.state, State::joining);
}

TEST_F(TransfersToLearners, ALearnerThatIsAskedToLeaveGetsNoState) {
  job.run({1});
  learner(7).draining = true;
  EXPECT_EQ(transfers.serve(), test::Peers{7});
  EXPECT_EQ(job.kinds_sent(1), Kinds{});
}

TEST_F(TransfersToLearners, RestartWhereTheSenderOfResultsLeaves) {
  job.run({1, 2});
  learner(7);
  (void)transfers.serve();
  job.state.current = CoordinatedJob::generation(2, {1});
  transfers.restart_from_leavers();
  EXPECT_EQ(job.state.workers.at(7).state, State::receiving) << "1 passes the results on";
  job.state.current = CoordinatedJob::generation(2, {2});
  transfers.restart_from_leavers();
  EXPECT_EQ(job.state.workers.at(7).state, State::joining);
}

TEST_F(TransfersToLearners, RestartWhereALearnerWaitsInVain) {
  job.run({1});
  Worker& worker = learner(7);
  (void)transfers.serve();  // begins to send the state after step 2
  worker.work.idle = 4;
  job.state.workers.at(1).completed = 3;
  EXPECT_FALSE(transfers.restart_stuck(3)) << "the result of step 2 may be on its way";
  job.state.workers.at(1).completed = 4;
  EXPECT_FALSE(transfers.restart_stuck(5)) << "it has not waited for so long";
  EXPECT_EQ(worker.state, State::receiving);
  EXPECT_TRUE(transfers.restart_stuck(3));
  EXPECT_EQ(worker.state, State::joining);
  EXPECT_EQ(job.count("stuck"), 1);
}

TEST_F(TransfersToLearners, AfterADeathAllRestart) {
  job.run({1, 2});
  learner(7);
  job.add(8, State::ready);
  (void)transfers.serve();
  transfers.restart();
  EXPECT_EQ(job.state.workers.at(7).state, State::joining);
  EXPECT_EQ(job.state.workers.at(8).state, State::ready);
  (void)job.sent(0);
  transfers.stop(7);
  EXPECT_EQ(job.kinds_sent(2), Kinds{"stop_sending"});
}

}  // namespace
}  // namespace elinvar
