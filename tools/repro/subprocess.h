#pragma once
// Runs other programs of the project to their end, one at a time, in a temporary folder. On Ctrl-C or SIGTERM it asks
// the program to end, and kills it if it does not. When a program ends, for whatever reason, the processes that it
// started are killed; the destructor removes the folder.
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

class Subprocess {
 public:
  struct Ended {
    int code = 0;  // exit code, or 128 + the signal that ended it
    std::string out, err;
    std::string last_words() const;  // the last lines of err
  };
  // `patience`: how long a program may take to end after SIGTERM.
  explicit Subprocess(std::chrono::milliseconds patience = std::chrono::seconds(20));
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;
  const std::filesystem::path& path() const { return folder_.path(); }
  // Throws Failure if the program cannot be started, or is interrupted.
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
  pid_t child_ = 0;      // guarded by mutex_; not reaped yet, so its pid is not reused
  Interrupt interrupt_;  // last: it may call end_child() until it is destroyed
};

}  // namespace elinvar
