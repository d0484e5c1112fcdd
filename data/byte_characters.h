#pragma once
// How files of byte-level tokenizers write a byte: printable characters of Latin-1 as themselves, the others as the
// characters from U+0100 on. Vocabularies begin with the bytes in the order of these characters.
#include <array>

namespace elinvar {

inline const std::array<char32_t, 256>& characters_of_bytes() {
  static const std::array<char32_t, 256> table = [] {
    std::array<char32_t, 256> points{};
    char32_t next = 0x100;
    for (char32_t byte = 0; byte < 256; ++byte) {
      const bool itself = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      points[byte] = itself ? byte : next++;
    }
    return points;
  }();
  return table;
}

}  // namespace elinvar
