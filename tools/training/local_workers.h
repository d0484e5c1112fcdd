#pragma once
// The workers on this machine that a coordinator's process has started. Ctrl-C stops only the coordinator's process,
// which tells its workers.
#include <sys/types.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace elinvar {

class LocalWorkers {
 public:
  void add(pid_t started);  // a child of this process

  struct Ended {
    pid_t pid;
    int status;
    std::string text() const;  // describes how the process ended
  };
  std::vector<Ended> ended();  // those since the last call
  const std::set<pid_t>& alive() const { return alive_; }
  void introduced(pid_t worker) { coming_.erase(worker); }  // the coordinator knows it from now on
  // Returns the number of those alive that the coordinator does not know yet.
  int coming() const { return static_cast<int>(coming_.size()); }
  void end_coming(int count);                                       // so many of these
  bool started(pid_t pid) const { return started_.contains(pid); }  // whether it is alive or not
  void kill_all() const;

 private:
  std::set<pid_t> alive_, started_, coming_;
};

// While an EndOfChild lives, `call` is called whenever a child of this process ends. `call` must be safe in a signal
// handler.
class EndOfChild {
 public:
  explicit EndOfChild(std::function<void()> call);
  ~EndOfChild();
  EndOfChild(const EndOfChild&) = delete;
  EndOfChild& operator=(const EndOfChild&) = delete;

 private:
  inline static std::function<void()> call_;
};

}  // namespace elinvar
