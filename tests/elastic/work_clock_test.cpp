#include "elastic/session/work_clock.h"

#include <gtest/gtest.h>

#include <thread>

namespace elinvar {
namespace {

TEST(WorkClock, TellsWhatTheLoopIsAtAndHowLongThatUsuallyTakes) {
  WorkClock clock;
  clock.at("a rank gradient", 1);
  EXPECT_EQ(clock.heartbeat(3).what, "a rank gradient");
  EXPECT_EQ(clock.heartbeat(3).lasts, 2.0);
  EXPECT_EQ(clock.heartbeat(3).usual, 0.0);
  clock.at("", 9);  // the first time predicts nothing
  clock.at("a rank gradient", 10);
  EXPECT_EQ(clock.heartbeat(11).usual, 0.0);
  clock.at("an evaluation", 12);
  clock.at("a rank gradient", 20);
  EXPECT_EQ(clock.heartbeat(21).what, "a rank gradient");
  EXPECT_EQ(clock.heartbeat(21).lasts, 1.0);
  EXPECT_EQ(clock.heartbeat(21).usual, 2.0);
  for (int i = 0; i < 3; ++i) {
    clock.at(kCopying, 30 + 10 * i);
    clock.at("", 32 + 10 * i);
  }
  clock.at(kCopying, 60);
  EXPECT_EQ(clock.heartbeat(61).usual, 0.0);  // the copy may have to wait for a disk, so its time is not predicted
}

TEST(WorkClock, TellsThePartOfLongerWork) {
  WorkClock clock;
  clock.at("a rank gradient", 1);
  clock.begins("a batch of an evaluation", WorkClock::Time(std::chrono::seconds(2)), {.number = 3, .of = 7});
  EXPECT_EQ(clock.heartbeat(3).part, 3);
  EXPECT_EQ(clock.heartbeat(3).parts, 7);
  clock.ends(WorkClock::Time(std::chrono::seconds(4)));
  EXPECT_EQ(clock.heartbeat(5).parts, 0);
}

// An update that waits for others, say: what it does before the wait and after it is one time.
TEST(WorkClock, APauseIsNoWorkAndDoesNotDivideIt) {
  WorkClock clock;
  const auto time = [](double seconds) {
    return WorkClock::Time(
        std::chrono::duration_cast<WorkClock::Time::duration>(std::chrono::duration<double>(seconds)));
  };
  for (int i = 0; i < 2; ++i) {
    clock.at("the update", 10 * i + 1);
    clock.begins("", time(10 * i + 3));
    EXPECT_EQ(clock.heartbeat(10 * i + 4).what, "") << "it waits";
    EXPECT_EQ(clock.heartbeat(10 * i + 4).idle, 1.0);
    clock.ends(time(10 * i + 5));
    EXPECT_EQ(clock.heartbeat(10 * i + 6).what, "the update");
    EXPECT_EQ(clock.heartbeat(10 * i + 6).lasts, 3.0);
    clock.at("", 10 * i + 8);
  }
  clock.at("the update", 30);
  EXPECT_EQ(clock.heartbeat(31).usual, 5.0);
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

// News that arrives while the loop works, or that makes it work, is not news that it sleeps through. Otherwise a
// heartbeat between a long rank gradient and the reduction would report a hang, and the worker would be evicted, as
// happened once.
TEST(WorkClock, NewsFromTheTimeOfAnEarlierWorkIsNoHang) {
  WorkClock clock;
  clock.news(0);
  clock.at("a rank gradient", 1);
  clock.news(2);
  clock.at("", 8);
  EXPECT_EQ(clock.heartbeat(8.5).what, "");
  EXPECT_EQ(clock.heartbeat(8.5).idle, 0.5);
  clock.news(9);
  EXPECT_EQ(clock.heartbeat(9.5).lasts, 0.5);
}

WorkClock::Time time_of(double seconds) {
  return WorkClock::Time(std::chrono::duration_cast<WorkClock::Time::duration>(std::chrono::duration<double>(seconds)));
}

// A rank gradient of one second with an evaluation of ten seconds in its middle.
TEST(WorkClock, AnActivityIsMeasuredApartFromWhatItIsWithin) {
  WorkClock clock;
  for (int i = 0; i < 2; ++i) {
    const double began = 100 * i;
    clock.at("a rank gradient", began);
    clock.begins("an evaluation", time_of(began + 0.5));
    EXPECT_EQ(clock.heartbeat(began + 4.5).what, "an evaluation");
    EXPECT_EQ(clock.heartbeat(began + 4.5).lasts, 4.0);
    clock.ends(time_of(began + 10.5));
    EXPECT_EQ(clock.heartbeat(began + 10.75).what, "a rank gradient");
    EXPECT_EQ(clock.heartbeat(began + 10.75).lasts, 0.75);
    clock.at("", began + 11);
  }
  clock.at("a rank gradient", 200);
  EXPECT_EQ(clock.heartbeat(201).usual, 1.0);
  clock.begins("an evaluation", time_of(202));
  EXPECT_EQ(clock.heartbeat(203).usual, 10.0);
  clock.begins("the profile", time_of(203));
  EXPECT_EQ(clock.heartbeat(204).what, "the profile");
  EXPECT_EQ(clock.heartbeat(204).usual, 0.0);
  clock.at("", 204);  // an activity continues when a nested one has ended
  EXPECT_EQ(clock.heartbeat(205).what, "the profile");
  clock.ends(time_of(205));
  clock.ends(time_of(206));
  EXPECT_EQ(clock.heartbeat(207).idle, 1.0);
}

TEST(WorkClock, WaitingRestartsAfterAnActivity) {
  WorkClock clock;
  clock.at("", 1);
  clock.begins("loading the state", time_of(2));
  clock.news(3);
  clock.ends(time_of(5));
  EXPECT_EQ(clock.heartbeat(5.5).what, "");
  EXPECT_EQ(clock.heartbeat(5.5).idle, 0.5);
  clock.news(6);
  EXPECT_EQ(clock.heartbeat(6.5).what, "waiting although there is news");
}

TEST(WorkClock, IsToldOfTheTimedActivitiesOfItsThreadAlone) {
  WorkClock clock;
  activity::clock = &clock;
  const auto now = [] { return WorkClock::seconds(std::chrono::steady_clock::now()); };
  clock.at("a rank gradient", now());
  {
    const TimedActivity outer("an evaluation");
    const Activity inner("forward");
    std::jthread([] { const TimedActivity other("a look at tensors"); }).join();
    EXPECT_EQ(clock.heartbeat(now()).what, "an evaluation");
  }
  EXPECT_EQ(clock.heartbeat(now()).what, "a rank gradient");
  EXPECT_LT(clock.heartbeat(now()).lasts, 60);
  activity::clock = nullptr;
}

}  // namespace
}  // namespace elinvar
