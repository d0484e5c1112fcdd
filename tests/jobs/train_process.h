#pragma once
// The train command for tests: child processes, and their runs in a folder.
#include <sys/types.h>

#include <chrono>
#include <functional>
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
  // Orphans of processes started here, such as workers whose coordinator was killed, become children of the test's
  // process; the destructor kills whatever still runs.
  TrainRuns();
  ~TrainRuns();

  // Starts `train` with these arguments; its output goes to NAME.out and NAME.err in the folder. `before` is a command
  // that starts others, such as "ip netns exec NAME".
  pid_t spawn(std::vector<std::string> arguments, const std::string& name = "train",
              const std::vector<std::string>& before = {}) const;
  // Starts another program of the project in the same way.
  pid_t spawn_program(const std::string& program, std::vector<std::string> arguments, const std::string& name,
                      const std::vector<std::string>& before = {}) const;
  // Starts any other program, by its name or path.
  pid_t spawn_words(std::vector<std::string> words, const std::string& name) const;
  // Kills the child after the limit and returns code -1.
  Ended wait(pid_t child, const std::string& name = "train",
             std::chrono::seconds limit = std::chrono::seconds(500)) const;
  // Waits until a condition holds. Returns false, and fails the test, if it does not within the limit, which is for
  // errors alone: it is long because other programs may use the machine.
  bool until(const std::function<bool()>& holds, std::chrono::seconds limit = std::chrono::seconds(120)) const;
  // Waits for all children. Returns those that are left at the limit, with the state of each, or "".
  std::string remaining_children(std::chrono::seconds limit) const;
  void kill_children() const;

  // Properties of the run in the folder NAME.
  std::string ledger(const std::string& name) const;
  std::string digests(const std::string& name) const;
  int64_t recorded(const std::string& name) const;       // steps in the ledger
  void reach(const std::string& name, int lines) const;  // waits until there are this many steps
  nlohmann::json status(const std::string& name) const;  // {} if no coordinator answers
  std::string endpoint(const std::string& name) const;   // its coordinator's, once there is one

 protected:
  TemporaryFolder folder_;
};

}  // namespace elinvar::test
