#include "tools/config/main_program.h"

#include <csignal>
#include <exception>

#include "tensor/check.h"
#include "tensor/reason.h"
#include "tools/config/standard_streams.h"

namespace elinvar {

int main_program(const char* name, const std::function<int()>& work) {
  open_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow (ulimit -f) is an error of the write that would
  try {
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
