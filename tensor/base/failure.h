#pragma once
// The three failures for .cu files and headers that they include, which must not use fmt. See tensor/base/check.h.
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
