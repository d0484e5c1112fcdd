// Which workers count as gone by the clock. hang_test.cpp tests find_hung, find_stuck and Patience.
#include "elastic/protocol/liveness.h"

#include <gtest/gtest.h>

#include "tests/elastic/coordinated_job.h"

namespace elinvar {
namespace {

using test::CoordinatedJob;
using State = Worker::State;

std::vector<PeerId> peers_of(const std::vector<Hung>& found) {
  std::vector<PeerId> peers;
  for (const Hung& hung : found) peers.push_back(hung.peer);
  return peers;
}

TEST(Liveness, NamesTheSilentWhileOthersAreHeard) {
  CoordinatedJob job({.heartbeat_timeout = 3});
  job.run({1, 2});
  Liveness liveness(job.state, 0);
  job.state.workers.at(1).seen = 3;
  EXPECT_TRUE(liveness.silent(3).empty());
  const std::vector<Hung> silent = liveness.silent(3.1);
  EXPECT_EQ(peers_of(silent), test::Peers{2});
  EXPECT_EQ(silent[0].reason, "silent for 3.0 s");
  // The other worker's last message is old, too: if it is late, all of them may be.
  EXPECT_TRUE(liveness.silent(4.6).empty());
  EXPECT_FALSE(liveness.deserted());
}

TEST(Liveness, HoldsWhereAllWhoHaveTheStateAreSilent) {
  CoordinatedJob job({.heartbeat_timeout = 3, .hold = 100});
  job.run({1, 2});
  job.add(7, State::receiving);
  Liveness liveness(job.state, 0);
  job.state.workers.at(7).seen = 10;  // a receiving worker could not continue alone
  EXPECT_TRUE(liveness.silent(10).empty());
  EXPECT_EQ(liveness.deserted(), 10);
  EXPECT_EQ(job.count("hold"), 1);
  // The first message of any of them gives all the full time again.
  job.state.workers.at(2).seen = 20;
  EXPECT_TRUE(liveness.silent(20).empty());
  EXPECT_FALSE(liveness.deserted());
  EXPECT_EQ(job.count("heard"), 1);
  for (const auto& [peer, w] : job.state.workers) EXPECT_EQ(w.seen, 20) << peer;
  // Their work seems to have lasted as long as they were stopped.
  job.state.workers.at(2).work = {.what = "a rank gradient", .lasts = 18, .usual = 0.1};
  job.state.workers.at(2).seen = 22.9;
  EXPECT_TRUE(liveness.hung(22.9).empty());
  EXPECT_EQ(peers_of(liveness.hung(23)), test::Peers{2});
}

TEST(Liveness, HoldsForSoLongAtMost) {
  CoordinatedJob job({.heartbeat_timeout = 3, .hold = 100});
  job.run({1, 2});
  Liveness liveness(job.state, 0);
  EXPECT_TRUE(liveness.silent(10).empty());
  EXPECT_TRUE(liveness.silent(109).empty());
  EXPECT_EQ(peers_of(liveness.silent(110)), (test::Peers{1, 2}));
  EXPECT_FALSE(liveness.deserted());
}

TEST(Liveness, TimeInWhichNobodyListenedIsNoSilence) {
  CoordinatedJob job({.heartbeat_timeout = 3});
  job.run({1});
  job.state.workers.at(1).seen = 5;
  Liveness liveness(job.state, 5);
  liveness.rest(5, /*soon=*/false);
  EXPECT_EQ(liveness.look_by(), 6);
  liveness.forgive_absence(6.2);
  EXPECT_EQ(job.state.workers.at(1).seen, 5) << "a little late";
  liveness.forgive_absence(16);
  EXPECT_EQ(job.state.workers.at(1).seen, 15) << "ten seconds after it was to look";
  liveness.rest(16, /*soon=*/false);
  liveness.wait_ended(16.5);  // woken early: it handles a message from here on
  liveness.forgive_absence(18.5);
  EXPECT_EQ(job.state.workers.at(1).seen, 17);
}

TEST(Liveness, LooksAgainWhenAWorkerWouldBeSilentOrSomethingIsToCome) {
  CoordinatedJob job({.heartbeat_timeout = 3});
  job.run({1, 2});
  Liveness liveness(job.state, 0);
  job.state.workers.at(1).seen = 8;
  job.state.workers.at(2).seen = 7.4;
  liveness.rest(10, /*soon=*/false);
  EXPECT_EQ(liveness.look_by(), 7.4 + 3);
  liveness.rest(10, /*soon=*/true);
  EXPECT_LT(liveness.look_by(), 10.1);
  (void)liveness.silent(20);
  ASSERT_TRUE(liveness.deserted());
  liveness.rest(20, /*soon=*/true);
  EXPECT_EQ(liveness.look_by(), 21) << "nothing is to come while all are silent";
}

TEST(Liveness, AfterALossInVainItWaitsTwiceAsLong) {
  CoordinatedJob job({.stuck = 3});
  job.run({1, 2});
  for (auto& [peer, w] : job.state.workers) w = {.peer = peer, .id = static_cast<int>(peer), .state = State::member};
  for (auto& [peer, w] : job.state.workers) w.work = {.idle = 4, .misses = peer == 2 ? "the trailer" : ""};
  Liveness liveness(job.state, 0);
  EXPECT_EQ(liveness.patience(), 3);
  EXPECT_EQ(liveness.stuck(3, 0.1), "worker 2 misses the trailer");
  EXPECT_EQ(liveness.patience(), 6);
  EXPECT_EQ(liveness.stuck(6, 0.1), std::nullopt);
  job.state.phase = JobState::Phase::holding;
  EXPECT_EQ(liveness.stuck(3, 0.1), std::nullopt);
}

}  // namespace
}  // namespace elinvar
