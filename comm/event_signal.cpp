#include "comm/event_signal.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "tensor/base/check.h"

namespace elinvar {

EventSignal::EventSignal() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (descriptor_ < 0) fail("cannot make an event descriptor: {}", std::strerror(errno));
}

EventSignal::~EventSignal() { ::close(descriptor_); }

// A full counter is already set, and an empty one already clear, so these failures are harmless.
void EventSignal::set() noexcept {
  const uint64_t one = 1;
  while (::write(descriptor_, &one, sizeof one) < 0 && errno == EINTR) continue;
}

void EventSignal::clear() noexcept {
  uint64_t count;
  while (::read(descriptor_, &count, sizeof count) < 0 && errno == EINTR) continue;
}

}  // namespace elinvar
