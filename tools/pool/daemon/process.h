#pragma once
// Processes of this host that outlive the process that started them, and can be found again: by their number and
// the moment at which they began, which no other process shares, or by words of their command line. Words go to the
// program as they are; no shell sees them.
#include <filesystem>
#include <string>
#include <vector>

namespace elinvar::pool {

// A session of its own, with `log` as stdout and stderr (added to; for its owner alone) and no other open files.
// Returns its handle; Failure if it cannot be started.
std::string start_process(const std::vector<std::string>& words, const std::filesystem::path& log);

struct ProcessState {
  bool running = true;
  int code = 0;  // exit code, or 128 + signal; -1: it has ended, and nobody knows how
};
ProcessState process_state(const std::string& handle);
void kill_process(const std::string& handle);  // at once, with its whole session's group; nothing if it is no more

// A process of this user whose command line has these words one after the other; "": none.
std::string find_process(const std::vector<std::string>& words);

// How often the kernel has killed a process of this machine for want of memory.
int64_t kernel_kills();

// A program that tells something in a moment.
struct ProgramOutput {
  int code = 0;  // -1: it took longer than `seconds`, and was killed
  std::string out, err;
};
ProgramOutput run_program(const std::vector<std::string>& words, double seconds);

std::string end_of_file(const std::filesystem::path& path, int64_t bytes);  // "" if there is none

}  // namespace elinvar::pool
