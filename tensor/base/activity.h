#pragma once
// What threads are at, for whoever watches them (tools/training/profiler.h): named intervals of time, nested in a
// thread.
//
//   const Activity activity("forward");   // until the end of the scope
//
// A process has one watcher at most. Without one an activity costs a load and a test.
#include <atomic>
#include <chrono>

namespace elinvar {

class ActivityWatcher {
 public:
  using Time = std::chrono::steady_clock::time_point;
  virtual ~ActivityWatcher() = default;
  // Called by the thread whose activity it is; any number of threads at once. Names live as long as the program.
  virtual void begins(const char* what) = 0;
  virtual void ends(const char* what, Time began) = 0;
};

namespace activity {
inline constinit std::atomic<ActivityWatcher*> watcher{nullptr};
// What the threads of a team (tensor/stream.h) are said to be at when they work for this one.
inline constinit thread_local const char* task = "task";
}  // namespace activity

class Activity {
 public:
  explicit Activity(const char* what) : watcher_(activity::watcher.load(std::memory_order_acquire)) {
    if (watcher_ == nullptr) [[likely]]
      return;
    what_ = what;
    watcher_->begins(what);
    began_ = std::chrono::steady_clock::now();
  }
  ~Activity() {
    if (watcher_ != nullptr) [[unlikely]]
      watcher_->ends(what_, began_);
  }
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;

 private:
  ActivityWatcher* watcher_;
  const char* what_ = nullptr;
  ActivityWatcher::Time began_;
};

}  // namespace elinvar
