#pragma once
// Ctrl-C and SIGTERM as a question to be asked between steps. While one of these lives the first signal only raises a
// flag; a second Ctrl-C ends the process at once, as without it.

namespace elinvar {

class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool requested() const;
};

}  // namespace elinvar
