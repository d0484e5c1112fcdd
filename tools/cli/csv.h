#pragma once
// Fields of .csv files.
#include <string>

namespace elinvar {

// Quotes text for CSV as RFC 4180 requires.
inline std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string result = "\"";
  for (const char c : text) result += c == '"' ? std::string("\"\"") : std::string(1, c);
  return result + '"';
}

}  // namespace elinvar
