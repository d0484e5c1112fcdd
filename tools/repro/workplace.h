#pragma once
// Where repro has other programs of the project do something: a temporary folder, in which they are run to their end.
// With Ctrl-C or SIGTERM they are asked to end, and killed if they do not. However one ends, what it has started itself
// ends with it; and the folder goes with everything in it.
#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "tensor/base/scratch_folder.h"
#include "tools/training/interrupt.h"

namespace elinvar {

struct Ended {
  int code = 0;  // exit code; 128 + signal if one ended it
  std::string out, err;
  std::string last_words() const;  // the last lines of err
};

class Workplace {
 public:
  // `patience`: how long what was asked to end has for it.
  explicit Workplace(std::chrono::milliseconds patience = std::chrono::seconds(20));
  ~Workplace();
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  const std::filesystem::path& path() const { return folder_.path(); }
  // Failure if it cannot be started, or was interrupted.
  Ended run(const std::filesystem::path& program, const std::vector<std::string>& arguments);

 private:
  pid_t start(const std::filesystem::path& program, const std::vector<std::string>& arguments) const;
  std::filesystem::path out() const { return path() / "stdout"; }
  std::filesystem::path err() const { return path() / "stderr"; }
  void end_child();

  ScratchFolder folder_;
  std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable ended_;
  pid_t child_ = 0;      // guarded; while it is there its number is nobody else's
  Interrupt interrupt_;  // last: it calls end_child() until it is gone
};

}  // namespace elinvar
