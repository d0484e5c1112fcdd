#pragma once
// What the exit code and the end of the log of a `train` process say about why it ended. Pure functions of the text.
#include <optional>
#include <string>

namespace elinvar::pool {

constexpr int kConfigurationError = 2;  // exit codes of `train`
constexpr int kRunFailure = 3;
constexpr int kUnknownExit = -1;  // nobody knows how it ended
constexpr int kKilled = 137;      // by SIGKILL

// "ended with exit code 3", "was killed by signal 9", "is gone".
std::string exit_text(int code);

// The last line of `log`; or of the last message of `train`, if it has one: srun and ssh add that it ended, not why.
std::string last_message(const std::string& log);

// Whether the process, or who ended it, said that memory was short.
bool out_of_memory(const std::string& log);

// The last message, if it says that the run can never be resumed because its ledger is missing or too short.
std::optional<std::string> lost_ledger(int code, const std::string& log);

}  // namespace elinvar::pool
