#pragma once
// What kind of character a code point is, in Unicode 16.0 whatever the machine has: a text falls into the same tokens
// everywhere. Unassigned code points are `other`.
#include <cstdint>

namespace elinvar {

enum class CharClass : uint8_t { other, letter, number, space };  // \p{L}, \p{N}, White_Space

CharClass class_of(char32_t point);

}  // namespace elinvar
