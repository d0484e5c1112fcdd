#pragma once
// Parses untrusted TOML. The parser, and code that walks through its tables, are recursive, so the depth of a text is
// bounded before it is parsed.
#include <toml++/toml.h>

#include <string>
#include <string_view>

namespace elinvar {

inline constexpr size_t kMostTomlBytes = size_t{4} << 20;

// Throws UsageError "<place>:<line>: ..." if the text is longer than kMostTomlBytes or nested deeper than any
// configuration: brackets in brackets, or names with too many dots.
void check_depth(std::string_view text, const std::string& place);

// Returns the parsed text. Throws UsageError if check_depth() does or if the text is not TOML.
toml::table parse_toml(std::string_view text, const std::string& place);

}  // namespace elinvar
