#include "tensor/base/activity.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace elinvar {
namespace {

struct Notes final : ActivityWatcher, ActivityClock {
  using ActivityClock::Time;
  void begins(const char* what) override { watched.push_back(std::string("+") + what); }
  void ends(const char* what, Time, int vrank) override {
    watched.push_back(std::string("-") + what);
    ranks.push_back(vrank);
  }
  void begins(const char* what, Time, ActivityPart) override { timed.push_back(std::string("+") + what); }
  void ends(Time) override { timed.push_back("-"); }
  std::vector<std::string> watched, timed;
  std::vector<int> ranks;
};

using Names = std::vector<std::string>;

void work() {
  const TimedActivity outer("an evaluation");
  const Activity inner("forward", 3);
}

TEST(Activity, IsWatchedAndTimedWhereSomebodyDoes) {
  Notes notes;
  work();
  activity::clock = &notes;
  work();
  EXPECT_EQ(notes.timed, (Names{"+an evaluation", "-"}));
  EXPECT_EQ(notes.watched, Names{});
  activity::watcher = &notes;
  work();
  EXPECT_EQ(notes.timed, (Names{"+an evaluation", "-", "+an evaluation", "-"}));
  EXPECT_EQ(notes.watched, (Names{"+an evaluation", "+forward", "-forward", "-an evaluation"}));
  EXPECT_EQ(notes.ranks, (std::vector<int>{3, activity::kNoRank}));
  std::jthread(work).join();  // a thread without a clock
  EXPECT_EQ(notes.timed.size(), 4u);
  EXPECT_EQ(notes.watched.size(), 8u);
  activity::watcher = nullptr;
  activity::clock = nullptr;
  work();
  EXPECT_EQ(notes.watched.size(), 8u);
}

// An activity ends on the clock on which it began.
TEST(Activity, EndsWhereItBegan) {
  Notes first, second;
  activity::clock = &first;
  {
    const TimedActivity activity("an evaluation");
    activity::clock = &second;
  }
  activity::clock = nullptr;
  EXPECT_EQ(first.timed, (Names{"+an evaluation", "-"}));
  EXPECT_EQ(second.timed, Names{});
}

}  // namespace
}  // namespace elinvar
