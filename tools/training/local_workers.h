#pragma once
// The workers on this machine that a coordinator's process has started. Ctrl-C is for the coordinator, which tells
// them.
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
    std::string text() const;  // how
  };
  std::vector<Ended> ended();  // since it was asked last
  const std::set<pid_t>& alive() const { return alive_; }
  bool started(pid_t pid) const { return started_.contains(pid); }  // alive or not
  void kill_all() const;

 private:
  std::set<pid_t> alive_, started_;
};

// While it lives, `call`, which must be fit for a signal handler, is made whenever a child of this process ends.
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
