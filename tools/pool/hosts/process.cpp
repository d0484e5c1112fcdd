#include "tools/pool/hosts/process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>

#include "tensor/base/check.h"
#include "tensor/base/file.h"

namespace elinvar::pool {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMostTold = 4 << 20;  // bytes of a program's output

struct Identity {
  pid_t pid = 0;
  std::string began;  // in the kernel's ticks
};

Identity identity_of(const std::string& handle) {
  const size_t colon = handle.find(':');
  if (colon == std::string::npos) return {};
  return {static_cast<pid_t>(std::stol(handle)), handle.substr(colon + 1)};
}

// Returns when the process started; "" if it does not exist or is a zombie.
std::string began(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t name_end = text.rfind(')');  // the name may contain anything
  if (name_end == std::string::npos) return "";
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  fields >> field;
  if (field == "Z" || field == "X") return "";
  for (int i = 4; i <= 22; ++i) fields >> field;
  return field;
}

class SpawnFiles {
 public:
  SpawnFiles() { posix_spawn_file_actions_init(&actions_); }
  ~SpawnFiles() { posix_spawn_file_actions_destroy(&actions_); }
  SpawnFiles(const SpawnFiles&) = delete;
  SpawnFiles& operator=(const SpawnFiles&) = delete;
  posix_spawn_file_actions_t* operator&() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

pid_t spawn(const std::vector<std::string>& words, SpawnFiles& files) {
  invariant(!words.empty(), "a program");
  posix_spawn_file_actions_addclosefrom_np(&files, 3);
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, words[0].c_str(), &files, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) fail("cannot start {}: {}", words[0], std::strerror(error));
  return pid;
}

}  // namespace

std::string start_process(const std::vector<std::string>& words, const fs::path& log) {
  SpawnFiles files;
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&files, 1, 2);
  const pid_t pid = spawn(words, files);
  return std::to_string(pid) + ":" + began(pid);
}

ProcessState process_state(const std::string& handle) {
  const Identity process = identity_of(handle);
  if (process.pid <= 0) return {.running = false, .code = -1};
  int status = 0;
  if (::waitpid(process.pid, &status, WNOHANG) == process.pid)  // a child of this process
    return {.running = false, .code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status)};
  const std::string present = began(process.pid);
  if (present.empty() || present != process.began) return {.running = false, .code = -1};
  return {};
}

void kill_process(const std::string& handle) {
  const Identity process = identity_of(handle);
  if (process.pid > 0 && began(process.pid) == process.began) ::kill(-process.pid, SIGKILL);
}

std::string find_process(const std::vector<std::string>& words) {
  std::string wanted(1, '\0');
  for (const std::string& word : words) wanted += word + '\0';
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "cmdline", std::ios::binary);
    const std::string line((std::istreambuf_iterator<char>(file)), {});
    const auto pid = static_cast<pid_t>(std::stol(name));
    if (line.find(wanted) == std::string::npos || pid == ::getpid()) continue;
    if (const std::string when = began(pid); !when.empty()) return name + ":" + when;
  }
  return "";
}

int64_t kernel_kills() {
  std::ifstream file("/proc/vmstat");
  std::string name;
  for (int64_t count = 0; file >> name >> count;)
    if (name == "oom_kill") return count;
  return 0;
}

ProgramOutput run_program(const std::vector<std::string>& words, double seconds) {
  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0) fail("cannot make a pipe: {}", std::strerror(errno));
  if (::pipe2(err, O_CLOEXEC) != 0) {
    ::close(out[0]);
    ::close(out[1]);
    fail("cannot make a pipe: {}", std::strerror(errno));
  }
  ProgramOutput told;
  try {
    SpawnFiles files;
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, out[1], 1);
    posix_spawn_file_actions_adddup2(&files, err[1], 2);
    const pid_t pid = spawn(words, files);
    ::close(out[1]);
    ::close(err[1]);
    out[1] = err[1] = -1;
    using Clock = std::chrono::steady_clock;
    const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
    pollfd ends[] = {{out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
    int open = 2;
    while (open > 0 && Clock::now() < deadline && told.out.size() + told.err.size() < kMostTold) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      if (::poll(ends, 2, static_cast<int>(left) + 1) <= 0) continue;
      for (pollfd& end : ends) {
        if ((end.revents & (POLLIN | POLLHUP)) == 0) continue;
        char bytes[4096];
        const ssize_t n = ::read(end.fd, bytes, sizeof bytes);
        if (n > 0) {
          (&end == ends ? told.out : told.err).append(bytes, static_cast<size_t>(n));
        } else {
          end.fd = -1;
          --open;
        }
      }
    }
    int status = 0;
    pid_t ended = 0;
    while (open == 0 && (ended = ::waitpid(pid, &status, WNOHANG)) == 0 && Clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (ended != pid) {
      ::kill(-pid, SIGKILL);
      ::waitpid(pid, &status, 0);
      told.code = -1;
    } else {
      told.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
  } catch (const Failure& failure) {
    told = {.code = -1, .out = {}, .err = failure.what()};
  }
  for (const int end : {out[0], out[1], err[0], err[1]})
    if (end >= 0) ::close(end);
  return told;
}

std::string end_of_file(const fs::path& path, int64_t bytes) {
  std::error_code none;
  if (!fs::is_regular_file(path, none)) return "";
  const File file = File::open(path);
  const int64_t size = file.size(), count = std::min(size, bytes);
  std::string text(static_cast<size_t>(count), '\0');
  file.read(size - count, text.data(), text.size());
  return text;
}

}  // namespace elinvar::pool
