#include "tools/cli/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "tensor/base/check.h"
#include "tensor/base/file.h"

namespace elinvar {
namespace {

// Returns the standard stream that is the same file as `now`, or null. A redirected stream has a place in its file,
// which a descriptor that is opened for the same file does not know.
std::FILE* standard_stream(const struct stat& now) {
  for (std::FILE* stream : {stdout, stderr}) {
    struct stat own;
    if (::fstat(::fileno(stream), &own) == 0 && own.st_dev == now.st_dev && own.st_ino == now.st_ino) return stream;
  }
  return nullptr;
}

void write_all(int descriptor, std::string_view text, const std::filesystem::path& path) {
  while (!text.empty()) {
    const ssize_t n = ::write(descriptor, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("cannot write to {}: {}", path.string(), std::strerror(errno));
    text.remove_prefix(static_cast<size_t>(n));
  }
}

// Returns whether `path` is a file that exists and cannot be replaced, because it is a device or a standard stream.
bool is_stream(const std::filesystem::path& path, struct stat& now) {
  if (::stat(path.c_str(), &now) != 0) return false;
  return S_ISCHR(now.st_mode) || S_ISFIFO(now.st_mode) || standard_stream(now) != nullptr;
}

}  // namespace

void check_output(const std::filesystem::path& path) {
  struct stat now;
  if (!is_stream(path, now)) return check_replaceable(path);
  if (::access(path.c_str(), W_OK) != 0) fail("cannot write to {}: {}", path.string(), std::strerror(errno));
}

void write_output(const std::filesystem::path& path, std::string_view text) {
  struct stat now;
  if (!is_stream(path, now)) return replace_file(path, text);
  if (std::FILE* stream = standard_stream(now)) {
    std::fflush(stream);
    return write_all(::fileno(stream), text, path);
  }
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) fail("cannot open {}: {}", path.string(), std::strerror(errno));
  try {
    write_all(descriptor, text, path);
  } catch (...) {
    ::close(descriptor);
    throw;
  }
  ::close(descriptor);
}

}  // namespace elinvar
