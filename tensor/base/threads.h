#pragma once
// The threads of a process: their default number, and how to start them.
#include <exception>
#include <stop_token>
#include <thread>
#include <type_traits>
#include <utility>

namespace elinvar {

// Returns the number of processors that this process may run on (its affinity), at least 1.
int usable_threads();

namespace thread {
void enter(const char* name);
[[noreturn]] void cannot_start(const char* name, const std::exception& why);
[[noreturn]] void end_process() noexcept;
}  // namespace thread

// Starts a thread with a name of at most 15 characters, which system tools show. `body` may take a std::stop_token, and
// must heed it when it waits: if a later thread of an object cannot be started, its earlier threads are joined. Throws
// Failure, with the limits of the process, if the thread cannot be started. An exception that leaves the body ends the
// process with a line on stderr and exit code 3; errors that others should handle must be passed on by the body.
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

// Throws Failure unless `count` more threads can be started now. For libraries that abort the process if they cannot
// start their threads; `name` is the library's.
void check_threads_left(int count, const char* name);

}  // namespace elinvar
