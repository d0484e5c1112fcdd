#pragma once
// Finds names of tokens in a text.
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace elinvar {

// Hashes strings, for maps that are looked up by views.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

class Names {
 public:
  struct Name {
    std::string text;
    int32_t token;
  };
  struct Found {
    size_t at;         // where it begins; the text's size if there is none
    const Name* name;  // null if there is none
  };

  explicit Names(const std::map<std::string, int32_t>& names) {
    for (const auto& [text, token] : names) by_first_[static_cast<unsigned char>(text[0])].push_back({text, token});
    for (std::vector<Name>& some : by_first_)
      std::ranges::sort(some, std::greater(), [](const Name& name) { return name.text.size(); });
  }

  // Returns the first name in the text; of several at one place, the longest.
  Found first_in(std::string_view text) const {
    for (size_t at = 0; at < text.size(); ++at)
      for (const Name& name : by_first_[static_cast<unsigned char>(text[at])])
        if (text.substr(at).starts_with(name.text)) return {at, &name};
    return {text.size(), nullptr};
  }

 private:
  std::array<std::vector<Name>, 256> by_first_;  // by their first byte, the longest first
};

}  // namespace elinvar
