#pragma once
// The threads of a process: how many it should use unless it is told, and how each of them is started.
#include <exception>
#include <stop_token>
#include <thread>
#include <type_traits>
#include <utility>

namespace elinvar {

// The processors that this process may run on (its affinity), at least 1.
int usable_threads();

namespace thread {
void enter(const char* name);
[[noreturn]] void cannot_start(const char* name, const std::exception& why);
[[noreturn]] void end_process() noexcept;
}  // namespace thread

// A thread under this name, at most 15 characters, by which the system shows it. `body` may take a std::stop_token.
// Failure where the process cannot have one more, with the limits that it is under; a body that waits must heed its
// token, so that those started before end with the object that they belong to. An exception that leaves the body ends
// the process with a line on stderr and exit code 3: what others are to know of it hands over itself.
template <class Body>
std::jthread start_thread(const char* name, Body body) {
  try {
    return std::jthread([name, body = std::move(body)](const std::stop_token& stop) mutable {
      try {
        thread::enter(name);
        if constexpr (std::is_invocable_v<Body&, std::stop_token>) body(stop);
        else body();
      } catch (...) {
        thread::end_process();
      }
    });
  } catch (const std::exception& why) {  // of the system, or std::bad_alloc
    thread::cannot_start(name, why);
  }
}

// Failure unless `count` more threads could be started now. For a library that aborts the process where it cannot have
// those that it wants: `name` says whose they are.
void check_threads_left(int count, const char* name);

}  // namespace elinvar
