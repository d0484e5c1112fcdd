#include "tools/repro/child.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
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

Ended run_program(const fs::path& program, const std::vector<std::string>& arguments, const fs::path& folder) {
  const std::string name = program.string(), out = folder / "stdout", err = folder / "stderr";
  std::vector<std::string> words = {name};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  for (const auto& [descriptor, path] : {std::pair(1, &out), std::pair(2, &err)})
    posix_spawn_file_actions_addopen(&files, descriptor, path->c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t pid = 0;
  const int error = posix_spawn(&pid, name.c_str(), &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) fail("cannot start {}: {}", name, std::strerror(error));
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = read_file(out),
          .err = read_file(err)};
}

fs::path beside_this_program(const std::string& name) {
  return fs::read_symlink("/proc/self/exe").parent_path() / name;
}

ScratchFolder::ScratchFolder() {
  std::string name = (fs::temp_directory_path() / "repro-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) fail("cannot make a temporary folder like {}", name);
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace elinvar
