#pragma once
// Suggestions for misspelt names in error messages.
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace elinvar {

// Counts the insertions, deletions, substitutions and swaps of neighbours (a swap counts once) that turn a into b.
int edit_distance(std::string_view a, std::string_view b);

// Returns the name nearest to `word` (the first of equals), or "" if none is near: more than a third of its letters,
// and more than two (one of a word of up to four), would have to change. Upper and lower case, '-' and '_' count as
// equal.
std::string nearest_spelling(std::string_view word, std::span<const std::string> names);

// Returns "; did you mean 'momentum'?" or, if nothing is near, "; valid are a, b, c" (nothing for an empty list).
std::string spelling_hint(std::string_view word, std::span<const std::string> names);

}  // namespace elinvar
