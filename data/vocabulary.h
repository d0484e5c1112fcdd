#pragma once
// Symbols and their numbers: either the 256 bytes, or a sorted list of Unicode code points.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace elinvar {

class Vocabulary {
 public:
  static Vocabulary bytes();
  // The code points of `text` (UTF-8), each once, ascending. symbols() gives them back, so that a vocabulary can be
  // stored as text: characters(v.symbols()) equals v. Throws Failure at malformed UTF-8, with its position.
  static Vocabulary characters(std::string_view text);

  int64_t size() const { return is_bytes() ? 256 : static_cast<int64_t>(points_.size()); }
  bool is_bytes() const { return points_.empty(); }
  std::string symbols() const;  // UTF-8; empty for bytes

  std::vector<int32_t> encode(std::string_view text) const;  // throws UsageError at a character that is no symbol
  std::string decode(int32_t token) const;                   // throws UsageError if out of range
  template <class Tokens>
  std::string decode_all(const Tokens& tokens) const {
    std::string text;
    for (auto token : tokens) text += decode(static_cast<int32_t>(token));
    return text;
  }

 private:
  std::vector<char32_t> points_;
};

}  // namespace elinvar
