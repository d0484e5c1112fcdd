#pragma once
// Processes of this host that outlive the process that started them and can be found again: by pid and start time,
// which together are unique, or by words of their command line. Words are passed to the program as they are, without a
// shell.
#include <filesystem>
#include <string>
#include <vector>

namespace elinvar::pool {

// Starts a process in its own session, with stdout and stderr appended to `log` (readable by its owner only) and no
// other open files. Returns its handle. Throws Failure if it cannot be started.
std::string start_process(const std::vector<std::string>& words, const std::filesystem::path& log);

struct ProcessState {
  bool running = true;
  int code = 0;  // exit code, or 128 + signal; -1: ended, but unknown how
};
ProcessState process_state(const std::string& handle);
void kill_process(const std::string& handle);  // kills its process group with SIGKILL; does nothing if it has ended

// Returns a process of this user whose command line contains these words in a row; "" if there is none.
std::string find_process(const std::vector<std::string>& words);

// Returns how often the kernel's out-of-memory killer has killed a process on this machine.
int64_t kernel_kills();

// The result of a program that ends quickly.
struct ProgramOutput {
  int code = 0;  // -1: it took longer than `seconds` and was killed
  std::string out, err;
};
ProgramOutput run_program(const std::vector<std::string>& words, double seconds);

std::string end_of_file(const std::filesystem::path& path, int64_t bytes);  // "" if the file does not exist

}  // namespace elinvar::pool
