#pragma once
// Finds out from the exit code and the end of the log of a `train` process why it ended. Pure functions of the text.
#include <optional>
#include <string>

namespace elinvar::pool {

constexpr int kConfigurationError = 2;  // exit codes of `train`
constexpr int kRunFailure = 3;
constexpr int kUnknownExit = -1;  // unknown how it ended
constexpr int kKilled = 137;      // by SIGKILL

// Describes how a process ended: "ended with exit code 3", "was killed by signal 9", "is gone".
std::string exit_text(int code);

// Returns the last message of `train` in `log`, else the last line: srun and ssh add a line about the exit, not the
// cause.
std::string last_message(const std::string& log);

// Whether the log shows that memory ran out, in the words of the process or of whatever killed it.
bool out_of_memory(const std::string& log);

// Returns the last message if it means that the run can never be resumed, because its ledger is missing or too short.
std::optional<std::string> lost_ledger(int code, const std::string& log);

}  // namespace elinvar::pool
