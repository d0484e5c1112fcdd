#include "tools/repro/workplace.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "tensor/check.h"
#include "tensor/file.h"

namespace elinvar {

namespace fs = std::filesystem;

constexpr size_t kLastWords = 2000;  // characters

std::string Ended::last_words() const {
  std::string words = err.size() > kLastWords ? err.substr(err.size() - kLastWords) : err;
  while (words.ends_with('\n')) words.pop_back();
  return words;
}

Workplace::Workplace()
    : folder_("repro"), interrupt_([this] {
        if (const pid_t child = child_; child > 0) ::kill(child, SIGTERM);
      }) {}

Ended Workplace::run(const fs::path& program, const std::vector<std::string>& arguments) {
  const auto check_interrupt = [this] {
    if (interrupt_.requested()) fail("interrupted");
  };
  check_interrupt();
  const pid_t child = start(program, arguments);
  child_ = child;
  if (interrupt_.requested()) ::kill(child, SIGTERM);  // it may have come before the child was known
  siginfo_t ended{};
  while (::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
  }
  child_ = 0;  // from here on its number may be another process's
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  check_interrupt();
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = read_file(out()),
          .err = read_file(err())};
}

pid_t Workplace::start(const fs::path& program, const std::vector<std::string>& arguments) const {
  const std::string name = program.string();
  std::vector<std::string> words = {name};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  for (const auto& [descriptor, path] : {std::pair(1, out().string()), std::pair(2, err().string())})
    posix_spawn_file_actions_addopen(&files, descriptor, path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, name.c_str(), &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) fail("cannot start {}: {}", name, std::strerror(error));
  return pid;
}

fs::path beside_this_program(const std::string& name) {
  return fs::read_symlink("/proc/self/exe").parent_path() / name;
}

}  // namespace elinvar
