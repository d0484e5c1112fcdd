#include "tools/cli/main_program.h"

#include <sys/resource.h>

#include <csignal>
#include <exception>

#include "tensor/base/check.h"
#include "tensor/base/reason.h"
#include "tools/cli/standard_streams.h"

namespace elinvar {

namespace {

constexpr rlim_t kLeastStack = rlim_t{1} << 20;  // bytes, for the first thread and those that it starts

void check_stack() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= kLeastStack)
    return;
  fail("the limit of the stack is {} KiB, expected at least {} (ulimit -s)", limit.rlim_cur >> 10, kLeastStack >> 10);
}

}  // namespace

int main_program(const char* name, const std::function<int()>& work) {
  open_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // writes beyond `ulimit -f` then fail with EFBIG
  try {
    check_stack();
    return finish_output(name, work());
  } catch (const UsageError& error) {
    say(stderr, "{}: {}\n", name, error.what());
    return 2;
  } catch (const std::exception& error) {
    say(stderr, "{}: {}\n", name, reason_of(error));
    return 3;
  }
}

}  // namespace elinvar
