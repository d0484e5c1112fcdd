#pragma once
// The three kinds of failure.
//   check(condition, ...)  the caller erred: throws UsageError (a program ends with exit code 2).
//   fail(...)              the world changed (a file is gone, a disk is full): throws Failure (exit code 3).
//   invariant(condition)   we erred: prints and aborts, because no state can be trusted any more.
// Messages name the operation in brackets, what was expected, what was found, and the next thing to try.
// Uses fmt, so it stays out of every header that a .cu file includes.
#include <fmt/format.h>

#include <string>
#include <utility>

#include "tensor/base/failure.h"

namespace elinvar {

template <class... Args>
void check(bool ok, fmt::format_string<Args...> message, Args&&... args) {
  if (!ok) [[unlikely]]
    throw UsageError(fmt::format(message, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) {
  throw Failure(fmt::format(message, std::forward<Args>(args)...));
}

}  // namespace elinvar
