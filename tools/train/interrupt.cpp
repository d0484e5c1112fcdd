#include "tools/train/interrupt.h"

#include <csignal>

namespace elinvar {
namespace {

volatile std::sig_atomic_t raised = 0;

void raise_flag(int signal) {
  raised = 1;
  std::signal(signal, SIG_DFL);
}

}  // namespace

Interrupt::Interrupt() {
  raised = 0;
  std::signal(SIGINT, raise_flag);
  std::signal(SIGTERM, raise_flag);
}

Interrupt::~Interrupt() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

bool Interrupt::requested() const { return raised != 0; }

}  // namespace elinvar
