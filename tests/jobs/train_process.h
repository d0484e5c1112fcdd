#pragma once
// The train command as tests use it: child processes, and the runs that they leave in a folder.
#include <sys/types.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace elinvar::test {

struct Ended {
  int code = -1;  // exit code; 128 + signal if it was killed
  std::string out, err;

  std::string last_line() const;
};

class TrainRuns {
 public:
  // Orphans of processes that are started here, as workers are whose coordinator was killed, become children of the
  // test's process; whatever still runs at the end is killed.
  TrainRuns();
  ~TrainRuns();

  // `train` with these arguments; what it prints goes to NAME.out and NAME.err in the folder. `before` is a command
  // that starts others, such as "ip netns exec NAME".
  pid_t spawn(std::vector<std::string> arguments, const std::string& name = "train",
              const std::vector<std::string>& before = {}) const;
  // The same with another program of the project.
  pid_t spawn_program(const std::string& program, std::vector<std::string> arguments, const std::string& name,
                      const std::vector<std::string>& before = {}) const;
  // Any other program, by its name or path.
  pid_t spawn_words(std::vector<std::string> words, const std::string& name) const;
  // Beyond the limit it is killed, and its code is -1.
  Ended wait(pid_t child, const std::string& name = "train",
             std::chrono::seconds limit = std::chrono::seconds(500)) const;
  // Waits for all children; those that are left then, and the state that each is in, or "".
  std::string remaining_children(std::chrono::seconds limit) const;
  void kill_children() const;

  // Of the run in the folder NAME:
  std::string ledger(const std::string& name) const;
  std::string digests(const std::string& name) const;
  int64_t recorded(const std::string& name) const;  // steps in the ledger
  void reach(const std::string& name,
             int lines) const;  // waits until there are so many steps; a failed test after 30 s
  nlohmann::json status(const std::string& name) const;  // {} where nobody answers
  std::string endpoint(const std::string& name) const;   // of its coordinator

 protected:
  TemporaryFolder folder_;
};

}  // namespace elinvar::test
