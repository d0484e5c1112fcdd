#include "tools/cli/standard_streams.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>

namespace elinvar {
namespace {

// Discards all further output to the stream. dup2 replaces the descriptor atomically, so that no file of another thread
// can get its number in between.
void discard_output(std::FILE* stream) {
  const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (null < 0) return;
  ::dup2(null, ::fileno(stream));
  ::close(null);
}

constexpr int kPatience = 1000;  // milliseconds for a reader to make room
std::atomic<bool> outlives = false;

// Uses poll() instead of O_NONBLOCK, which programs that share the terminal or pipe would get as well. A pipe that
// poll() reports as writable has room for PIPE_BUF bytes.
void write_or_lose(std::FILE* stream, std::string_view text) noexcept {
  static std::atomic<bool> stuck[2];  // by stream: stdout, stderr
  std::atomic<bool>& is_stuck = stuck[stream == stderr];
  std::fflush(stream);
  while (!text.empty()) {
    pollfd file{::fileno(stream), POLLOUT, 0};
    const int ready = ::poll(&file, 1, is_stuck ? 0 : kPatience);
    if (ready < 0 && errno == EINTR) continue;
    is_stuck = ready <= 0;
    if (is_stuck) return;
    const ssize_t put = ::write(file.fd, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    if (put < 0 && errno == EINTR) continue;
    // A full disk may have room again later; a reader that is gone does not return.
    if (put < 0 && (errno == EPIPE || errno == EIO || errno == EBADF)) discard_output(stream);
    if (put < 0) return;
    text.remove_prefix(static_cast<size_t>(put));
  }
}

}  // namespace

void open_standard_streams() {
  for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number)
    if (::fcntl(number, F_GETFD) < 0 && errno == EBADF)  // open() returns the lowest free number, which is this one
      (void)!::open("/dev/null", number == STDIN_FILENO ? O_RDONLY : O_WRONLY);
}

void outlive_readers() {
  std::signal(SIGPIPE, SIG_IGN);
  outlives = true;
}

void say_text(std::FILE* stream, std::string_view text) noexcept {
  if (outlives) return write_or_lose(stream, text);
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

int finish_output(const char* program, int exit_code) {
  errno = 0;
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (!failed || exit_code != 0) return exit_code;
  say(stderr, "{}: cannot write to standard output: {}\n", program, std::strerror(errno != 0 ? errno : EIO));
  return 3;
}

}  // namespace elinvar
