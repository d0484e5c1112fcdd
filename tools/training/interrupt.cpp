#include "tools/training/interrupt.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

#include "tensor/base/check.h"
#include "tensor/base/threads.h"

namespace elinvar {
namespace {

std::atomic<int> raised = 0, counted = 1;  // the handlers of two signals may meet
std::atomic<bool> hung_up = false;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);
int wake[2] = {-1, -1};  // a pipe, because a signal handler may write to one

void count(int signal) {
  if (signal == SIGHUP && hung_up.exchange(true)) return;
  const int error = errno, times = ++raised;
  const char byte = 1;
  (void)!write(wake[1], &byte, 1);
  if (times >= counted && signal != SIGHUP) std::signal(signal, SIG_DFL);
  errno = error;
}

bool ignored(int signal) {
  struct sigaction now {};
  return sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

Interrupt::Interrupt(std::function<void()> call, int count_to) {
  raised = 0;
  hung_up = false;
  counted = count_to;
  if (pipe2(wake, O_CLOEXEC) != 0) fail("cannot make a pipe for signals");
  if (call) {
    caller_ = start_thread("signals", [call = std::move(call)] {
      char byte = 0;
      while (read(wake[0], &byte, 1) == 1 && byte == 1) call();
    });
  }
  std::signal(SIGINT, count);
  std::signal(SIGTERM, count);
  if (!ignored(SIGHUP)) std::signal(SIGHUP, count);
}

Interrupt::~Interrupt() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  if (!ignored(SIGHUP)) std::signal(SIGHUP, SIG_DFL);
  const char end = 0;
  (void)!write(wake[1], &end, 1);
  if (caller_.joinable()) caller_.join();
  close(wake[0]);
  close(wake[1]);
}

int Interrupt::requested() const { return raised; }

}  // namespace elinvar
