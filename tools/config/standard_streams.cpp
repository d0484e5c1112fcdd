#include "tools/config/standard_streams.h"

#include <fcntl.h>
#include <stdio_ext.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

namespace elinvar {
namespace {

// Everything that is written to the stream from now on is lost. dup2 leaves no moment in which another thread's file
// could get the number.
void discard_output(std::FILE* stream) {
  const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (null < 0) return;
  ::dup2(null, ::fileno(stream));
  ::close(null);
}

}  // namespace

void open_standard_streams() {
  for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number)
    if (::fcntl(number, F_GETFD) < 0 && errno == EBADF)  // the lowest free number, which open gives, is this one
      (void)!::open("/dev/null", number == STDIN_FILENO ? O_RDONLY : O_WRONLY);
}

void outlive_readers() { std::signal(SIGPIPE, SIG_IGN); }

void say_text(std::FILE* stream, std::string_view text) noexcept {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stream) == text.size() && std::fflush(stream) == 0) return;
  const int error = errno;
  std::clearerr(stream);
  __fpurge(stream);
  // A full disk may have room again; a reader that is gone does not come back.
  if (error == EPIPE || error == EIO || error == EBADF) discard_output(stream);
}

int finish_output(const char* program, int exit_code) {
  errno = 0;
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (!failed || exit_code != 0) return exit_code;
  say(stderr, "{}: cannot write to standard output: {}\n", program, std::strerror(errno != 0 ? errno : EIO));
  return 3;
}

}  // namespace elinvar
