#include "elastic/step/arrangement.h"

#include <algorithm>
#include <charconv>

#include "tensor/base/check.h"

namespace elinvar {

void read_arrangement(std::string_view text, Arrangement& arrangement) {
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view entry = text.substr(0, end);
    text.remove_prefix(std::min(text.size(), end + 1));
    const size_t equals = std::min(entry.find('='), entry.size());
    const std::string_view key = entry.substr(0, equals), value = entry.substr(std::min(equals + 1, entry.size()));
    int number = -1;
    const auto [stop, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    const bool whole = error == std::errc{} && stop == value.data() + value.size();
    check(key == "zero" && whole && number >= 0 && number <= kMostZero,
          "[arrangement] expected zero=0 to zero={}, got '{}'", kMostZero, entry);
    arrangement.zero = number;
  }
}

}  // namespace elinvar
