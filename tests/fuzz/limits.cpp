#include "tests/fuzz/limits.h"

#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>

#include "tensor/allocator.h"
#include "tensor/base/check.h"

namespace elinvar::test {
namespace {

constexpr time_t kSeconds = 120;
constexpr int64_t kBytes = int64_t{512} << 20;

const char* watched = "";
char time_text[64] = "";  // processor time

// Calls only functions that are allowed in a signal handler and without memory.
[[noreturn]] void end_with(const char* what) {
  for (const char* text : {"fuzz: reading an input of '", watched, "' takes more than ", what, "\n"})
    if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) break;
  std::abort();
}

void out_of_time(int signal) { end_with(signal == SIGPROF ? time_text : "120 s"); }
void out_of_memory() { end_with("512 MiB of memory"); }

void set_timers(time_t processor, time_t all) {
  for (const auto& [timer, seconds] : {std::pair{ITIMER_PROF, processor}, {ITIMER_REAL, all}}) {
    const itimerval once{.it_interval = {}, .it_value = {.tv_sec = seconds, .tv_usec = 0}};
    invariant(::setitimer(timer, &once, nullptr) == 0, "a timer is set");
  }
}

rlim_t addresses() {
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<rlim_t>(::sysconf(_SC_PAGE_SIZE));
}

}  // namespace

FuzzLimits::FuzzLimits(const char* target, int processor_seconds) : tensors_(HostAllocator::instance().stats().in_use) {
  watched = target;
  *fmt::format_to_n(time_text, sizeof time_text - 1, "{} s of processor time", processor_seconds).out = 0;
  (void)HostAllocator::instance().allocate(1);  // reserves its addresses at its first allocation
  HostAllocator::instance().reset_peak();
  for (const int signal : {SIGPROF, SIGALRM}) std::signal(signal, out_of_time);
  handler_ = std::set_new_handler(out_of_memory);
  invariant(::getrlimit(RLIMIT_AS, &before_) == 0, "limits can be read");
  const rlimit less{.rlim_cur = std::min(before_.rlim_max, addresses() + static_cast<rlim_t>(kBytes)),
                    .rlim_max = before_.rlim_max};
  invariant(::setrlimit(RLIMIT_AS, &less) == 0, "a limit can be lowered");
  set_timers(processor_seconds, kSeconds);
}

FuzzLimits::~FuzzLimits() {
  set_timers(0, 0);
  ::setrlimit(RLIMIT_AS, &before_);
  std::set_new_handler(handler_);
  for (const int signal : {SIGPROF, SIGALRM}) std::signal(signal, SIG_DFL);
  if (HostAllocator::instance().stats().peak_in_use - tensors_ > kBytes) out_of_memory();
}

}  // namespace elinvar::test
