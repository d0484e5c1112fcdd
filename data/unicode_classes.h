#pragma once
// The class of a code point in Unicode 16.0, whatever version the machine has, so that a text has the same tokens
// everywhere. Unassigned code points are `other`.
#include <cstdint>

namespace elinvar {

enum class CharClass : uint8_t { other, letter, number, space };  // \p{L}, \p{N}, White_Space

CharClass class_of(char32_t point);

// The same for code points below 0x80.
constexpr CharClass ascii_class(unsigned char c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return CharClass::letter;
  if (c >= '0' && c <= '9') return CharClass::number;
  return c == ' ' || (c >= '\t' && c <= '\r') ? CharClass::space : CharClass::other;
}

}  // namespace elinvar
