#include "elastic/session/watch.h"

#include <gtest/gtest.h>

namespace elinvar {
namespace {

TEST(Watch, DecidesByWhatTheWorkerSees) {
  using Do = Watch::Do;
  const WatchOptions options{.silence = 3, .takeover = 5, .apart = 1, .hold = 60};
  Watch watch(options, 1, 0);
  EXPECT_FALSE(watch.out_of_touch(2.9));
  watch.heard(2);
  EXPECT_FALSE(watch.asks(3.7));
  EXPECT_TRUE(watch.asks(3.9));
  EXPECT_EQ(watch.decide(Watch::Observation{1, 4}, 0, 4).what, Do::nothing);
  EXPECT_TRUE(watch.out_of_touch(5.1));
  EXPECT_EQ(watch.decide(Watch::Observation{1, 4}, 0, 5.5).what, Do::nothing);
  // It counts, so it lives and may be heard again.
  EXPECT_EQ(watch.decide(Watch::Observation{1, 5}, 0, 9.5).what, Do::nothing);
  EXPECT_EQ(watch.decide(Watch::Observation{1, 5}, 0, 14).what, Do::nothing);
  EXPECT_EQ(watch.decide(Watch::Observation{1, 5}, 1, 15).what, Do::nothing);
  const Watch::Decision decision = watch.decide(Watch::Observation{1, 5}, 0, 15);
  EXPECT_EQ(decision.what, Do::take_over);
  EXPECT_EQ(decision.reason, "the coordinator has not counted on for 5 s");
  EXPECT_EQ(watch.decide(Watch::Observation{1, 5}, 0, 16).what, Do::nothing);  // not again at once
  EXPECT_EQ(watch.decide(Watch::Observation{2, 0}, 0, 17).what, Do::follow);
  watch.follow(2, 17);
  watch.heard(17);
  watch.lost();
  EXPECT_EQ(watch.decide(Watch::Observation{2, 3}, 0, 18.5).what, Do::reconnect);  // perhaps only the connection broke
  EXPECT_EQ(watch.decide(std::nullopt, 0, 19).what, Do::reconnect);
  watch.answered();
  watch.heard(19);
  EXPECT_EQ(watch.decide(std::nullopt, 0, 20).what, Do::nothing);
  watch.lost();
  EXPECT_EQ(watch.decide(Watch::Observation{2, 4}, 0, 21).what, Do::reconnect);
  EXPECT_EQ(watch.decide(Watch::Observation{2, 4}, 0, 26).what, Do::take_over);  // the coordinator is gone
  EXPECT_EQ(watch.decide(std::nullopt, 0, 80).what, Do::reconnect);
  EXPECT_EQ(watch.decide(std::nullopt, 0, 82).what, Do::leave);
}

// Non-members take over after the members of the newest generation, in the order of their arrival. That generation may
// have no members.
TEST(Watch, WhoIsNoMemberTakesOverAfterAllThatAre) {
  using Do = Watch::Do;
  const auto waits = [](int members, int rank, int arrival) {
    Watch watch({.silence = 3, .takeover = 5, .apart = 1, .hold = 60, .arrival = arrival}, 1, 0);
    watch.lost();
    double now = 1;
    while (watch.decide(Watch::Observation{1, 4, members}, rank, now).what != Do::take_over && now < 50) now += 0.5;
    return now - 1;
  };
  EXPECT_EQ(waits(0, -1, 0), 5);
  EXPECT_EQ(waits(0, -1, 2), 7);
  EXPECT_EQ(waits(3, 2, 0), 7);
  EXPECT_EQ(waits(3, -1, 0), 8);
  EXPECT_EQ(waits(3, -1, 4), 12);
}

// decide() is only called while a worker is out of touch, so a message must end that time by itself.
TEST(Watch, SilencesFarApartAreNotOne) {
  const WatchOptions options{.silence = 3, .hold = 60};
  Watch watch(options, 1, 0);
  EXPECT_TRUE(watch.out_of_touch(4));
  EXPECT_EQ(watch.decide(std::nullopt, 0, 4).what, Watch::Do::nothing);
  watch.heard(5);
  watch.heard(99);
  EXPECT_TRUE(watch.out_of_touch(103));
  EXPECT_EQ(watch.decide(std::nullopt, 0, 103).what, Watch::Do::nothing);
  EXPECT_EQ(watch.decide(std::nullopt, 0, 163.5).what, Watch::Do::leave);
}

}  // namespace
}  // namespace elinvar
