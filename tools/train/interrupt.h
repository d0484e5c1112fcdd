#pragma once
// Ctrl-C, SIGTERM and the hang-up of the terminal as a question to be asked, or as a call. While one of these lives the
// first signal is only counted; a second Ctrl-C ends the process at once, as without it, unless it is counted, too. A
// hang-up counts once, since the kernel and the shell both report it; a process that ignores it (nohup) still does.
#include <functional>
#include <thread>

namespace elinvar {

class Interrupt {
 public:
  Interrupt() : Interrupt(nullptr) {}
  // The call is made from a thread of its own at each signal that is counted: so many.
  explicit Interrupt(std::function<void()> call, int count_to = 1);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  int requested() const;  // how often

 private:
  std::jthread caller_;
};

}  // namespace elinvar
