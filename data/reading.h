#pragma once
// How many threads make batches ahead, and how many batches: by the time that computing waits for them. One reader more
// at a time, as long as each makes it faster; the first that does not is given up, and that is the end of it. It
// decides when a batch is made, never what is in it.
#include <optional>
#include <string>

namespace elinvar {

struct Reading {
  int threads = 1, prefetch = 4;
  bool operator==(const Reading&) const = default;
};

class ReadingPlan {
 public:
  ReadingPlan(const Reading& first, int most) : now_(first), most_(most) {}

  // A batch was waited for for `waited` of the `seconds` since the one before it. What is better, once enough was seen.
  std::optional<Reading> took(double waited, double seconds);
  const std::string& reason() const { return reason_; }  // of the last one

 private:
  Reading now_;
  const int most_;
  std::optional<Reading> before_;  // while one reader more is tried,
  double batch_before_ = 0;        // and seconds a batch without it
  bool settled_ = false;
  double waited_ = 0, seconds_ = 0;
  int batches_ = 0;
  std::string reason_;
};

}  // namespace elinvar
