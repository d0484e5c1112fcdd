#pragma once
// Parses TOML from outside. The parser, and the code that walks through its tables, goes into them by recursion,
// so the depth of a text is bounded before there are any.
#include <toml++/toml.h>

#include <string>
#include <string_view>

namespace elinvar {

inline constexpr size_t kMostTomlBytes = size_t{4} << 20;

// UsageError "<place>:<line>: ..." for a text that is longer than that, or deeper than any configuration: brackets in
// brackets, names with too many dots.
void check_depth(std::string_view text, const std::string& place);

// The parsed text; UsageError for that, and for what is no TOML.
toml::table parse_toml(std::string_view text, const std::string& place);

}  // namespace elinvar
