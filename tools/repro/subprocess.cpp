#include "tools/repro/subprocess.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <set>

#include "tensor/base/check.h"
#include "tensor/base/file.h"

namespace elinvar {

namespace fs = std::filesystem;

constexpr size_t kLastWords = 2000;  // characters of stderr to report

namespace {

std::set<pid_t> children() {
  std::set<pid_t> found;
  std::error_code gone;
  for (const auto& process : fs::directory_iterator("/proc", gone)) {
    const std::string name = process.path().filename().string();
    std::string stat;
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (!std::getline(std::ifstream(process.path() / "stat"), stat)) continue;
    const size_t end = stat.rfind(") ");  // the end of the program's name; a state letter and the parent follow
    if (end != std::string::npos && std::strtol(stat.c_str() + end + 3, nullptr, 10) == ::getpid())
      found.insert(std::stoi(name));
  }
  return found;
}

// Kills all children except `others`. When a child ends, its children become children of this process (a subreaper).
void end_all_but(const std::set<pid_t>& others) {
  for (bool more = true; more;) {
    more = false;
    for (const pid_t left : children()) {
      if (others.contains(left)) continue;
      more = true;
      ::kill(left, SIGKILL);
      ::waitpid(left, nullptr, 0);
    }
  }
}

}  // namespace

std::string Subprocess::Ended::last_words() const {
  std::string words = err.size() > kLastWords ? err.substr(err.size() - kLastWords) : err;
  while (words.ends_with('\n')) words.pop_back();
  return words;
}

Subprocess::Subprocess(std::chrono::milliseconds patience)
    : folder_("repro"), patience_(patience), interrupt_([this] { end_child(); }) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // a worker that outlives its coordinator becomes a child of this process
}

Subprocess::~Subprocess() { ::prctl(PR_SET_CHILD_SUBREAPER, 0); }

void Subprocess::end_child() {
  std::unique_lock lock(mutex_);
  if (child_ == 0) return;
  ::kill(child_, SIGTERM);
  if (!ended_.wait_for(lock, patience_, [this] { return child_ == 0; })) ::kill(child_, SIGKILL);
}

Subprocess::Ended Subprocess::run(const fs::path& program, const std::vector<std::string>& arguments) {
  const auto check_interrupt = [this] {
    if (interrupt_.requested()) fail("interrupted");
  };
  pid_t child = 0;
  const std::set<pid_t> others = children();
  {
    const std::lock_guard lock(mutex_);  // an interrupt comes before the child is started or finds it
    check_interrupt();
    child = child_ = start(program, arguments);
  }
  siginfo_t ended{};
  while (::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
  }
  int status = 0;
  {
    const std::lock_guard lock(mutex_);
    ::waitpid(child, &status, 0);
    child_ = 0;
  }
  ended_.notify_all();
  end_all_but(others);
  check_interrupt();
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = read_file(out()),
          .err = read_file(err())};
}

pid_t Subprocess::start(const fs::path& program, const std::vector<std::string>& arguments) const {
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

}  // namespace elinvar
