#include "elastic/step/arrangement.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <span>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

struct Entry {
  std::string_view key;
  int least, most;
  int* value;
};

void read_entry(std::string_view text, std::span<const Entry> entries) {
  const size_t equals = std::min(text.find('='), text.size());
  const std::string_view key = text.substr(0, equals), value = text.substr(std::min(equals + 1, text.size()));
  int number = -1;
  const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool whole = error == std::errc{} && stop == value.data() + value.size();
  const auto entry = std::find_if(entries.begin(), entries.end(), [&](const Entry& e) { return e.key == key; });
  check(entry != entries.end(), "[arrangement] expected dp=N, tp=N, pp=N, zero=N or copies=N, got '{}'", text);
  check(whole && number >= entry->least && number <= entry->most,
        "[arrangement] expected {0}={1} to {0}={2}, got '{3}'", key, entry->least, entry->most, text);
  *entry->value = number;
}

}  // namespace

int read_arrangement(std::string_view text, Arrangement& arrangement) {
  int dp = 0;
  const Entry entries[] = {{"dp", 1, kMostParallel, &dp},
                           {"tp", 1, kMostParallel, &arrangement.tp},
                           {"pp", 1, kMostParallel, &arrangement.pp},
                           {"zero", 0, kMostZero, &arrangement.zero},
                           {"copies", 1, kMostParallel, &arrangement.copies}};
  if (text.empty()) return 0;
  while (true) {
    const size_t end = text.find(',');
    read_entry(text.substr(0, end), entries);
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  const int64_t workers = int64_t{std::max(dp, 1)} * arrangement.tp * arrangement.pp;
  check(workers <= kMostParallel, "[arrangement] at most {} workers expected, but dp={},tp={},pp={} has {}",
        kMostParallel, std::max(dp, 1), arrangement.tp, arrangement.pp, workers);
  return dp;
}

std::string to_string(const Arrangement& arrangement) {
  std::string text;
  const auto add = [&](std::string_view key, int value) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, value);
  };
  if (arrangement.tp > 1) add("tp", arrangement.tp);
  if (arrangement.pp > 1) add("pp", arrangement.pp);
  if (arrangement.zero > 0 || text.empty()) add("zero", arrangement.zero);
  if (arrangement.zero > 0) add("copies", arrangement.copies);
  return text;
}

}  // namespace elinvar
