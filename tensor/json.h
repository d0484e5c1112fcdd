#pragma once
// Parsing of untrusted JSON, from files and messages. nlohmann::json copies, compares and prints its trees by
// recursion, so the nesting of a text is limited before it is parsed.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

namespace elinvar {

inline constexpr int kMostNesting = 64;  // what any format here has is far below

// Whether brackets outside of strings are nested deeper than `most`. Only exact for valid JSON, which is what a parser
// then asks for.
bool nested_deeper(std::string_view text, int most);

// The value; discarded, which is neither an object nor an array nor anything else, if the text is no JSON or nested
// deeper than kMostNesting.
template <class Json = nlohmann::json>
Json parse_json(std::string_view text) {
  if (nested_deeper(text, kMostNesting)) return Json(nlohmann::json::value_t::discarded);
  return Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}

// The object that a file is. Failure, naming the file, if it cannot be read or is none.
nlohmann::json read_json_object(const std::filesystem::path& path);

}  // namespace elinvar
