#pragma once
// Parsing of untrusted JSON, from files and messages. nlohmann::json copies, compares and prints its trees by
// recursion, so the nesting of a text is limited before it is parsed.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

namespace elinvar {

inline constexpr int kMostNesting = 64;  // every format here needs far less

// Returns whether brackets outside strings are nested deeper than `most`. Exact for valid JSON only; a parser rejects
// the rest.
bool nested_deeper(std::string_view text, int most);

// Returns the parsed value, or a discarded value (is_discarded(), of no type) if the text is not JSON or is nested
// deeper than kMostNesting.
template <class Json = nlohmann::json>
Json parse_json(std::string_view text) {
  if (nested_deeper(text, kMostNesting)) return Json(nlohmann::json::value_t::discarded);
  return Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}

// Reads a file that holds a JSON object. Throws Failure, with the file's name, if it cannot be read or holds anything
// else.
nlohmann::json read_json_object(const std::filesystem::path& path);

}  // namespace elinvar
