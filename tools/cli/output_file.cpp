#include "tools/cli/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <system_error>

#include "tensor/base/check.h"
#include "tensor/base/file.h"

namespace elinvar {
namespace {

// Returns the descriptor of this process that a path names, or null: a file that is opened again by this name would
// have another place to write at.
std::optional<int> named_descriptor(const std::filesystem::path& path) {
  const std::string& text = path.native();
  if (text == "/dev/stdout") return STDOUT_FILENO;
  if (text == "/dev/stderr") return STDERR_FILENO;
  for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/"}) {
    int number = 0;
    const char* const end = text.data() + text.size();
    if (!text.starts_with(folder)) continue;
    const auto [read, error] = std::from_chars(text.data() + folder.size(), end, number);
    if (error == std::errc() && read == end && ::fcntl(number, F_GETFD) >= 0) return number;
  }
  return std::nullopt;
}

bool is_device_or_pipe(const std::filesystem::path& path) {
  struct stat now;
  return ::stat(path.c_str(), &now) == 0 && (S_ISCHR(now.st_mode) || S_ISFIFO(now.st_mode));
}

void write_all(int descriptor, std::string_view text, const std::filesystem::path& path) {
  while (!text.empty()) {
    const ssize_t n = ::write(descriptor, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("cannot write to {}: {}", path.string(), std::strerror(errno));
    text.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace

void check_output(const std::filesystem::path& path) {
  if (named_descriptor(path)) return;
  if (!is_device_or_pipe(path)) return check_replaceable(path);
  if (::access(path.c_str(), W_OK) != 0) fail("cannot write to {}: {}", path.string(), std::strerror(errno));
}

void write_output(const std::filesystem::path& path, std::string_view text) {
  if (const std::optional<int> named = named_descriptor(path)) {
    std::fflush(nullptr);
    return write_all(*named, text, path);
  }
  if (!is_device_or_pipe(path)) return replace_file(path, text);
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
