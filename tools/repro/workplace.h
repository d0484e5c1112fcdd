#pragma once
// Where repro has other programs of the project do something: a temporary folder, in which they are run to their end.
// With Ctrl-C or SIGTERM they are ended first, and the folder goes with everything in it.
#include <sys/types.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "tensor/scratch_folder.h"
#include "tools/train/interrupt.h"

namespace elinvar {

struct Ended {
  int code = 0;  // exit code; 128 + signal if one ended it
  std::string out, err;
  std::string last_words() const;  // the last lines of err
};

class Workplace {
 public:
  Workplace();
  const std::filesystem::path& path() const { return folder_.path(); }
  // Failure if it cannot be started, or was interrupted.
  Ended run(const std::filesystem::path& program, const std::vector<std::string>& arguments);

 private:
  pid_t start(const std::filesystem::path& program, const std::vector<std::string>& arguments) const;
  std::filesystem::path out() const { return path() / "stdout"; }
  std::filesystem::path err() const { return path() / "stderr"; }

  ScratchFolder folder_;
  std::atomic<pid_t> child_ = 0;
  Interrupt interrupt_;
};

// A program that is installed beside this one.
std::filesystem::path beside_this_program(const std::string& name);

}  // namespace elinvar
