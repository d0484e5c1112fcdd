#pragma once
// Limits for reading one input outside of libFuzzer, which gets its own limits from tools/fuzz.
#include <sys/resource.h>

#include <cstdint>

namespace elinvar::test {

// While an object lives, the process ends with the target's name if it exceeds a limit of processor time (120 s in
// total) or uses 512 MiB more memory than before, in tensors, which are counted at the end, or otherwise.
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
