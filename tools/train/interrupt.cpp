#include "tools/train/interrupt.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <csignal>

#include "tensor/check.h"

namespace elinvar {
namespace {

volatile std::sig_atomic_t raised = 0;
int wake[2] = {-1, -1};  // a pipe: what a signal handler may write to

void raise_flag(int signal) {
  raised = 1;
  const char byte = 1;
  (void)!write(wake[1], &byte, 1);
  std::signal(signal, SIG_DFL);
}

}  // namespace

Interrupt::Interrupt(std::function<void()> call) {
  raised = 0;
  if (pipe2(wake, O_CLOEXEC) != 0) fail("cannot make a pipe for signals");
  if (call) {
    caller_ = std::jthread([call = std::move(call)] {
      char byte = 0;
      if (read(wake[0], &byte, 1) == 1 && byte == 1) call();
    });
    pthread_setname_np(caller_.native_handle(), "signals");
  }
  std::signal(SIGINT, raise_flag);
  std::signal(SIGTERM, raise_flag);
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

bool Interrupt::requested() const { return raised != 0; }

}  // namespace elinvar
