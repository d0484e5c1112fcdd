#include "tools/pool/daemon/exit_report.h"

#include <fmt/format.h>

namespace elinvar::pool {
namespace {

// Returns the log from the last line that `train` begins with its name; the whole log if there is none.
std::string from_last_message(const std::string& log) {
  const size_t own = log.rfind("\ntrain: ");
  if (own != std::string::npos) return log.substr(own + 1);
  return log;
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

std::string exit_text(int code) {
  if (code == kUnknownExit) return "is gone";
  return code > 128 ? fmt::format("was killed by signal {}", code - 128) : fmt::format("ended with exit code {}", code);
}

std::string last_message(const std::string& log) {
  const std::string from = from_last_message(log);
  const std::string text = from.starts_with("train: ") ? from.substr(0, from.find('\n')) : from;
  const size_t end = text.find_last_not_of(" \r\n") + 1;
  if (end == 0) return "";
  const size_t before = text.rfind('\n', end - 1), begin = before == std::string::npos ? 0 : before + 1;
  return text.substr(begin, end - begin);
}

bool out_of_memory(const std::string& log) {
  for (const char* sign : {"out of memory", "Out Of Memory", "oom-kill", "bad_alloc", "oom_kill"})
    if (contains(log, sign)) return true;
  return false;
}

// A checkpoint that cannot be read now may be readable at the next attempt; a ledger that lacks steps stays so.
std::optional<std::string> lost_ledger(int code, const std::string& log) {
  if (code != kRunFailure) return std::nullopt;
  const std::string message = from_last_message(log);
  if (!message.starts_with("train: ") || !contains(message, "ledger.jsonl")) return std::nullopt;
  if (!contains(message, "cannot resume") && !contains(message, "ends before step")) return std::nullopt;
  std::string text;  // as one line: the reasons follow the message on indented lines
  for (size_t at = 0; at < message.size();) {
    const size_t end = std::min(message.find('\n', at), message.size());
    const std::string line = message.substr(at, end - at);
    const size_t first = line.find_first_not_of(' ');
    if (at > 0 && first == 0) break;  // the next message
    if (first != std::string::npos) text += (at > 0 ? "; " : "") + line.substr(first);
    at = end + 1;
  }
  return text;
}

}  // namespace elinvar::pool
