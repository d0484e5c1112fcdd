#pragma once
// Ctrl-C and SIGTERM as a question to be asked, or as a call. While one of these lives the first signal only raises a
// flag; a second Ctrl-C ends the process at once, as without it.
#include <functional>
#include <thread>

namespace elinvar {

class Interrupt {
 public:
  Interrupt() : Interrupt(nullptr) {}
  explicit Interrupt(std::function<void()> call);  // made from a thread of its own
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool requested() const;

 private:
  std::jthread caller_;
};

}  // namespace elinvar
