#include "tools/launch/self_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "tensor/base/check.h"
#include "tools/cli/program_beside.h"

namespace elinvar {
namespace {

// Adds an option unless its value is empty, which means the default.
void add(std::vector<std::string>& arguments, const char* option, const std::string& value) {
  if (!value.empty()) arguments.insert(arguments.end(), {option, value});
}

}  // namespace

pid_t start_self(std::vector<std::string> arguments, bool apart) {
  arguments.insert(arguments.begin(), program_name());
  std::vector<char*> argv;
  for (std::string& word : arguments) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, apart ? POSIX_SPAWN_SETSID : POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, "/proc/self/exe", nullptr, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) fail("cannot start another process of this program: {}", std::strerror(error));
  return pid;
}

pid_t start_worker(const WorkerOptions& options) {
  std::vector<std::string> arguments = {"join", options.endpoint};
  if (options.local) arguments.emplace_back("--local");
  add(arguments, "--device", options.device);
  add(arguments, "--isa", options.isa);
  add(arguments, "--offload", options.offload);
  if (options.threads > 0) add(arguments, "--threads", std::to_string(options.threads));
  add(arguments, "--listen", options.listen);
  add(arguments, "--advertise", options.advertise);
  add(arguments, "--key", options.key);
  add(arguments, "--run-dir", options.run_dir);
  add(arguments, "--name", options.name);
  for (const std::string& setting : options.overrides) add(arguments, "--set", setting);
  if (!options.profile.empty()) arguments.push_back("--profile=" + options.profile);
  return start_self(std::move(arguments));
}

void start_coordinator(const TakeoverOptions& options) {
  std::vector<std::string> arguments = {"coordinate", options.run_dir, "--term", std::to_string(options.term)};
  add(arguments, "--listen", options.listen);
  add(arguments, "--advertise", options.advertise);
  add(arguments, "--key", options.key);
  (void)start_self(std::move(arguments), /*apart=*/true);
}

std::vector<std::string> own_command_line() {
  std::vector<std::string> words;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);  // words end with a zero byte
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

}  // namespace elinvar
