#include "tools/training/local_workers.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <iterator>
#include <utility>

namespace elinvar {

void LocalWorkers::add(pid_t started) {
  alive_.insert(started);
  started_.insert(started);
  coming_.insert(started);
}

std::string LocalWorkers::Ended::text() const {
  if (WIFSIGNALED(status)) return fmt::format("killed by signal {}", WTERMSIG(status));
  return fmt::format("exit code {}", WEXITSTATUS(status));
}

std::vector<LocalWorkers::Ended> LocalWorkers::ended() {
  std::vector<Ended> all;
  for (auto it = alive_.begin(); it != alive_.end();) {
    int status = 0;
    if (waitpid(*it, &status, WNOHANG) == *it) {
      all.push_back({*it, status});
      coming_.erase(*it);
      it = alive_.erase(it);
    } else {
      ++it;
    }
  }
  return all;
}

void LocalWorkers::end_coming(int count) {
  for (; count > 0 && !coming_.empty(); --count) {
    const auto last = std::prev(coming_.end());
    ::kill(*last, SIGTERM);
    coming_.erase(last);
  }
}

void LocalWorkers::kill_all() const {
  for (const pid_t pid : alive_) ::kill(pid, SIGKILL);
}

EndOfChild::EndOfChild(std::function<void()> call) {
  call_ = std::move(call);
  struct sigaction action {};
  action.sa_handler = [](int) {
    const int error = errno;
    call_();
    errno = error;
  };
  action.sa_flags = SA_RESTART | SA_NOCLDSTOP;
  sigaction(SIGCHLD, &action, nullptr);
}

EndOfChild::~EndOfChild() { std::signal(SIGCHLD, SIG_DFL); }

}  // namespace elinvar
