#pragma once
// The three failures, for code without fmt: what a .cu file includes must not have it (tensor/base/check.h has the
// words).
#include <stdexcept>

namespace elinvar {

class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[noreturn]] void invariant_failed(const char* what, const char* file, int line);

inline void invariant(bool ok, const char* what, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  if (!ok) [[unlikely]]
    invariant_failed(what, file, line);
}

}  // namespace elinvar
