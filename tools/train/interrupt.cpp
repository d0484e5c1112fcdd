#include "tools/train/interrupt.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>

#include "tensor/check.h"
#include "tensor/threads.h"

namespace elinvar {
namespace {

std::atomic<int> raised = 0, counted = 1;  // the handlers of two signals may meet
static_assert(std::atomic<int>::is_always_lock_free);
int wake[2] = {-1, -1};  // a pipe: what a signal handler may write to

void count(int signal) {
  const int times = ++raised;
  const char byte = 1;
  (void)!write(wake[1], &byte, 1);
  if (times >= counted) std::signal(signal, SIG_DFL);
}

}  // namespace

Interrupt::Interrupt(std::function<void()> call, int count_to) {
  raised = 0;
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
}

Interrupt::~Interrupt() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  const char end = 0;
  (void)!write(wake[1], &end, 1);
  if (caller_.joinable()) caller_.join();
  close(wake[0]);
  close(wake[1]);
}

int Interrupt::requested() const { return raised; }

}  // namespace elinvar
