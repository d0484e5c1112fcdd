#include "tensor/base/threads.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "tensor/base/check.h"
#include "tensor/base/reason.h"

namespace elinvar {

int usable_threads() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

namespace {

// Lists the limits that may prevent another thread, with the commands that show them.
std::string limits() {
  std::string text;
  rlimit limit{};
  if (getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    text += fmt::format(", its user may have {} (ulimit -u)", limit.rlim_cur);
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    text += fmt::format(", and it may take {} KiB of addresses (ulimit -v)", limit.rlim_cur / 1024);
  std::error_code error;
  const auto tasks = std::filesystem::directory_iterator("/proc/self/task", error);
  const auto now = error ? 0 : std::distance(begin(tasks), end(tasks));
  return fmt::format(
      "this process has {} threads{}; raise the limit that is reached (of a container it may be pids.max),"
      " or use fewer --threads",
      now, text);
}

}  // namespace

namespace thread {

void enter(const char* name) { pthread_setname_np(pthread_self(), name); }

void cannot_start(const char* name, const std::exception& why) {
  fail("cannot start another thread ({}): {}; {}", name, reason_of(why), limits());
}

void end_process() noexcept {
  const auto end = [](const char* reason) {
    std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, reason);
    std::_Exit(3);
  };
  try {
    throw;
  } catch (const std::exception& error) {
    end(reason_of(error));
  } catch (...) {
  }
  end("an unknown error");
  std::abort();
}

}  // namespace thread

void check_threads_left(int count, const char* name) {
  std::vector<std::jthread> held;
  for (int i = 0; i < count; ++i)
    held.push_back(start_thread(name, [](const std::stop_token& stop) {
      std::mutex mutex;
      std::unique_lock lock(mutex);
      std::condition_variable_any().wait(lock, stop, [] { return false; });
    }));
}

}  // namespace elinvar
