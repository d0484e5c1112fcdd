#include "comm/socket_shutdown.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

namespace elinvar {

SocketShutdown::SocketShutdown(int descriptor) : descriptor_(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0)) {}

SocketShutdown::~SocketShutdown() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

SocketShutdown::SocketShutdown(SocketShutdown&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

SocketShutdown& SocketShutdown::operator=(SocketShutdown&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void SocketShutdown::shut_down() const { ::shutdown(descriptor_, SHUT_RDWR); }

}  // namespace elinvar
