#include "tools/training/spawn.h"

#include <spawn.h>
#include <unistd.h>

#include <cstring>

#include "tensor/base/check.h"

namespace elinvar {

pid_t spawn_train(std::vector<std::string> arguments, bool apart) {
  arguments.insert(arguments.begin(), "train");
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

}  // namespace elinvar
