#include "data/unicode_classes.h"

#include <cstddef>
#include <vector>

namespace elinvar {
namespace {

struct Range {
  char32_t first, last;
};

#include "data/unicode_classes.inc"

constexpr size_t kPoints = 0x110000;

template <size_t N>
constexpr bool holds(const Range (&ranges)[N], char32_t point) {
  for (const Range& r : ranges)
    if (point <= r.last) return point >= r.first;  // ranges are ascending
  return false;
}

constexpr bool ascii_agrees() {
  for (unsigned char c = 0; c < 0x80; ++c) {
    const CharClass kind = ascii_class(c);
    if (holds(kLetters, c) != (kind == CharClass::letter) || holds(kNumbers, c) != (kind == CharClass::number) ||
        holds(kSpaces, c) != (kind == CharClass::space))
      return false;
  }
  return true;
}
static_assert(ascii_agrees());

std::vector<CharClass> table() {
  std::vector<CharClass> classes(kPoints, CharClass::other);
  const auto fill = [&](const auto& ranges, CharClass c) {
    for (const Range& r : ranges)
      for (char32_t p = r.first; p <= r.last; ++p) classes[p] = c;
  };
  fill(kLetters, CharClass::letter);
  fill(kNumbers, CharClass::number);
  fill(kSpaces, CharClass::space);
  return classes;
}

}  // namespace

CharClass class_of(char32_t point) {
  static const std::vector<CharClass> classes = table();
  return point < kPoints ? classes[point] : CharClass::other;
}

}  // namespace elinvar
