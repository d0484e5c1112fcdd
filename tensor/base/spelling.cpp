#include "tensor/base/spelling.h"

#include <fmt/format.h>

#include <algorithm>

namespace elinvar {

int edit_distance(std::string_view a, std::string_view b) {
  // Rows i - 2, i - 1 and i of the table of distances between prefixes (optimal string alignment).
  std::vector<int> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, above);
    std::swap(above, row);
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string nearest_spelling(std::string_view word, std::span<const std::string> names) {
  const auto fold = [](std::string_view s) {
    std::string folded(s);
    for (char& c : folded) {
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
      if (c == '-') c = '_';
    }
    return folded;
  };
  constexpr size_t kLongestWord = 200;  // a longer word is no slip, and comparing it takes long
  std::string nearest;
  if (word.size() > kLongestWord) return nearest;
  constexpr size_t kShort = 4;
  int best = std::max(word.size() <= kShort ? 1 : 2, static_cast<int>(word.size()) / 3) + 1;
  for (const std::string& name : names) {
    const int distance = edit_distance(fold(word), fold(name));
    // A word with every letter replaced is not similar, however short it is.
    if (distance < best && distance < static_cast<int>(std::max(word.size(), name.size()))) {
      best = distance;
      nearest = name;
    }
  }
  return nearest;
}

std::string spelling_hint(std::string_view word, std::span<const std::string> names) {
  if (const std::string nearest = nearest_spelling(word, names); !nearest.empty())
    return fmt::format("; did you mean '{}'?", nearest);
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "; valid are " : ", ") + name;
  return all;
}

}  // namespace elinvar
