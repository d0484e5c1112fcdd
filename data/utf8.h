#pragma once
// UTF-8, one code point at a time.
#include <cstdint>
#include <string>
#include <string_view>

namespace elinvar {

struct CodePoint {
  char32_t value = 0;
  uint8_t bytes = 1;  // its length
  bool good = true;   // false if no character begins there; then `value` is that byte
};

// Returns the code point at text[at]; at < text.size(). Stray and missing continuation bytes, overlong forms,
// surrogates and values beyond U+10FFFF are not good.
inline CodePoint code_point(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  if (lead < 0x80) return {lead};
  const CodePoint bad{.value = lead, .good = false};
  if (lead < 0xC2 || lead > 0xF4) return bad;
  const size_t more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  if (at + more >= text.size()) return bad;
  char32_t value = lead & (0x3Fu >> more);
  for (size_t i = 1; i <= more; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return bad;
    value = value << 6 | (byte(at + i) & 0x3Fu);
  }
  constexpr char32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
  if (value < kLeast[more] || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return bad;
  return {value, static_cast<uint8_t>(more + 1)};
}

inline bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point(text, at);
    if (!c.good) return false;
    at += c.bytes;
  }
  return true;
}

// Whether the text is UTF-8 without control characters (of ASCII and of Latin-1).
inline bool is_printable(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point(text, at);
    if (!c.good || c.value < 0x20 || (c.value >= 0x7F && c.value < 0xA0)) return false;
    at += c.bytes;
  }
  return true;
}

// Returns how many bytes at the end of `text` begin an incomplete character.
inline size_t unfinished_bytes(std::string_view text) {
  for (size_t n = 1; n <= 3 && n <= text.size(); ++n) {
    const auto lead = static_cast<unsigned char>(text[text.size() - n]);
    if ((lead & 0xC0) == 0x80) continue;
    const size_t needed = lead < 0xC2 || lead > 0xF4 ? 1 : lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    return needed > n ? n : 0;
  }
  return 0;
}

inline void append_utf8(std::string& out, char32_t point) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | point >> 6);
    put(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    put(0xE0 | point >> 12);
    put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  } else {
    put(0xF0 | point >> 18);
    put(0x80 | (point >> 12 & 0x3F));
    put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  }
}

}  // namespace elinvar
