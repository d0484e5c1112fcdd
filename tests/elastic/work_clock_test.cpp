#include "elastic/session/work_clock.h"

#include <gtest/gtest.h>

namespace elinvar {
namespace {

TEST(WorkClock, TellsWhatTheLoopIsAtAndHowLongThatUsuallyTakes) {
  WorkClock clock;
  clock.at("a leaf", 1);
  EXPECT_EQ(clock.heartbeat(3).what, "a leaf");
  EXPECT_EQ(clock.heartbeat(3).lasts, 2.0);
  EXPECT_EQ(clock.heartbeat(3).usual, 0.0);
  clock.at("", 9);  // the first time tells nothing of the next
  clock.at("a leaf", 10);
  EXPECT_EQ(clock.heartbeat(11).usual, 0.0);
  clock.at("an evaluation", 12);
  clock.at("a leaf", 20);
  EXPECT_EQ(clock.heartbeat(21).what, "a leaf");
  EXPECT_EQ(clock.heartbeat(21).lasts, 1.0);
  EXPECT_EQ(clock.heartbeat(21).usual, 2.0);
  for (int i = 0; i < 3; ++i) {
    clock.at(kCopying, 30 + 10 * i);
    clock.at("", 32 + 10 * i);
  }
  clock.at(kCopying, 60);
  EXPECT_EQ(clock.heartbeat(61).usual, 0.0);  // it may have to wait for a disk: nothing tells how long
}

TEST(WorkClock, NewsThatNobodyLooksAtIsAHang) {
  WorkClock clock;
  clock.news(1);
  clock.news(2);
  EXPECT_EQ(clock.heartbeat(4).what, "waiting although there is news");
  EXPECT_EQ(clock.heartbeat(4).lasts, 3.0);
  clock.looked();
  EXPECT_EQ(clock.heartbeat(5).what, "");
  EXPECT_EQ(clock.heartbeat(5).idle, 5.0);
  clock.heard(3);
  EXPECT_EQ(clock.heartbeat(5).what, "");
  EXPECT_EQ(clock.heartbeat(5).idle, 2.0);
}

// News that came while the loop was at work, or made it work, is none that it sleeps through: a heartbeat between a
// long leaf and the reduction told of a hang, and the worker was evicted.
TEST(WorkClock, NewsFromTheTimeOfAnEarlierWorkIsNoHang) {
  WorkClock clock;
  clock.news(0);
  clock.at("a leaf", 1);
  clock.news(2);
  clock.at("", 8);
  EXPECT_EQ(clock.heartbeat(8.5).what, "");
  EXPECT_EQ(clock.heartbeat(8.5).idle, 0.5);
  clock.news(9);
  EXPECT_EQ(clock.heartbeat(9.5).lasts, 0.5);
}

}  // namespace
}  // namespace elinvar
