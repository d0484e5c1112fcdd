#pragma once
// Turns SIGINT, SIGTERM and SIGHUP into a count that can be polled, and optionally into a call. While an object lives,
// signals up to `count_to` are only counted; a further SIGINT or SIGTERM ends the process as usual. SIGHUP counts once,
// since the kernel and the shell both send it, and stays ignored in a process that ignores it (nohup).
#include <functional>
#include <thread>

namespace elinvar {

class Interrupt {
 public:
  Interrupt() : Interrupt(nullptr) {}
  // Calls `call` with the count from a thread of its own, at each signal that is counted.
  explicit Interrupt(std::function<void()> call, int count_to = 1);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  int requested() const;  // the number of signals counted so far

 private:
  std::jthread caller_;
};

}  // namespace elinvar
