#pragma once
// What reading one input may take, where no libFuzzer watches (to which tools/fuzz gives limits of its own).
#include <sys/resource.h>

#include <cstdint>

namespace elinvar::test {

// While it lives, the process ends with the target's name if it takes more than so much processor time, 120 s in all,
// or 512 MiB more memory than it had: in tensors, which are counted at the end, or else.
class FuzzLimits {
 public:
  explicit FuzzLimits(const char* target, int processor_seconds = 10);
  ~FuzzLimits();
  FuzzLimits(const FuzzLimits&) = delete;
  FuzzLimits& operator=(const FuzzLimits&) = delete;

 private:
  int64_t tensors_;
  rlimit before_{};
  void (*handler_)();
};

}  // namespace elinvar::test
