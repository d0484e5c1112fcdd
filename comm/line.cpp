#include "comm/line.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

namespace elinvar {

Line::Line(int descriptor) : descriptor_(::fcntl(descriptor, F_DUPFD_CLOEXEC, 0)) {}

Line::~Line() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Line::Line(Line&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

Line& Line::operator=(Line&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void Line::cut() const { ::shutdown(descriptor_, SHUT_RDWR); }

}  // namespace elinvar
