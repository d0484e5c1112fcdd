#pragma once
// Reports what threads do to a watcher (tools/training/profiler.h), as named intervals of time that nest within a
// thread.
//
//   const Activity activity("forward", vrank);   // until the end of the scope
//
// A process has at most one watcher. Without one, an activity costs a load and a test.
//
// A thread may also have a clock, which measures timed activities, those that take about as long each time.
// elastic/session/work_clock.h detects hangs with it.
//
//   const TimedActivity activity("an evaluation");
#include <atomic>
#include <chrono>
#include <cstdint>

namespace elinvar {

class ActivityWatcher {
 public:
  using Time = std::chrono::steady_clock::time_point;
  virtual ~ActivityWatcher() = default;
  // Called by the thread whose activity it is; any number of threads at once. Names live as long as the program.
  // `vrank`: the virtual rank for which the thread works, or kNoRank.
  virtual void begins(const char* what) = 0;
  virtual void ends(const char* what, Time began, int vrank) = 0;
};

// Says that an activity is a part of longer work, for people: its number, from 1 on, and that of all parts. 0: it is
// none.
struct ActivityPart {
  int64_t number = 0, of = 0;
};

class ActivityClock {
 public:
  using Time = ActivityWatcher::Time;
  virtual ~ActivityClock() = default;
  // Called by the thread whose clock it is, for nested activities in the order of a stack.
  virtual void begins(const char* what, Time now, ActivityPart part = {}) = 0;
  virtual void ends(Time now) = 0;
};

namespace activity {
inline constexpr int kNoRank = -1;
inline constinit std::atomic<ActivityWatcher*> watcher{nullptr};
inline constinit thread_local ActivityClock* clock = nullptr;  // of this thread; may be null
// The activity reported for the threads of a team (tensor/stream.h) while they work for this thread.
inline constinit thread_local const char* task = "task";
}  // namespace activity

class Activity {
 public:
  explicit Activity(const char* what, int vrank = activity::kNoRank)
      : watcher_(activity::watcher.load(std::memory_order_acquire)) {
    if (watcher_ == nullptr) [[likely]]
      return;
    what_ = what;
    vrank_ = vrank;
    watcher_->begins(what);
    began_ = std::chrono::steady_clock::now();
  }
  ~Activity() {
    if (watcher_ != nullptr) [[unlikely]]
      watcher_->ends(what_, began_, vrank_);
  }
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

 private:
  ActivityWatcher* watcher_;
  const char* what_ = nullptr;
  int vrank_ = activity::kNoRank;
  ActivityWatcher::Time began_;
};

// An activity that the clock of its thread measures, if there is one.
class TimedActivity {
 public:
  explicit TimedActivity(const char* what, ActivityPart part = {}) : activity_(what), clock_(activity::clock) {
    if (clock_ != nullptr) clock_->begins(what, std::chrono::steady_clock::now(), part);
  }
  ~TimedActivity() {
    if (clock_ != nullptr) clock_->ends(std::chrono::steady_clock::now());
  }
  TimedActivity(const TimedActivity&) = delete;
  TimedActivity& operator=(const TimedActivity&) = delete;

 private:
  Activity activity_;
  ActivityClock* clock_;
};

}  // namespace elinvar
