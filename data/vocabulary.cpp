#include "data/vocabulary.h"

#include <algorithm>

#include "tensor/check.h"

namespace elinvar {
namespace {

// The code point at text[at], moving `at` past it. Refuses stray and missing continuation bytes, overlong forms,
// surrogates and what lies beyond U+10FFFF.
char32_t next_point(std::string_view text, size_t& at) {
  const size_t start = at;
  const auto lead = static_cast<unsigned char>(text[at++]);
  if (lead < 0x80) return lead;
  const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  char32_t point = lead & (0x3Fu >> more);
  bool good = lead >= 0xC2 && lead <= 0xF4;
  for (int i = 0; good && i < more; ++i, ++at) {
    good = at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
    if (good) point = point << 6 | (static_cast<unsigned char>(text[at]) & 0x3Fu);
  }
  constexpr char32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
  good = good && point >= kLeast[more] && point <= 0x10FFFF && (point < 0xD800 || point > 0xDFFF);
  if (!good)
    fail("[text] expected UTF-8, found a malformed character at byte {}; tokens = \"byte\" reads any text", start);
  return point;
}

void append_utf8(std::string& out, char32_t point) {
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

}  // namespace

Vocabulary Vocabulary::bytes() { return {}; }

Vocabulary Vocabulary::characters(std::string_view text) {
  check(!text.empty(), "[text] a vocabulary of characters needs a text that is not empty");
  std::vector<bool> seen(0x110000);
  for (size_t at = 0; at < text.size();) seen[next_point(text, at)] = true;
  Vocabulary v;
  for (size_t p = 0; p < seen.size(); ++p)
    if (seen[p]) v.points_.push_back(static_cast<char32_t>(p));
  return v;
}

std::string Vocabulary::symbols() const {
  std::string text;
  for (char32_t p : points_) append_utf8(text, p);
  return text;
}

std::vector<int32_t> Vocabulary::encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  if (is_bytes()) {
    for (char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t point = next_point(text, at);
    const auto it = std::lower_bound(points_.begin(), points_.end(), point);
    check(it != points_.end() && *it == point, "[text] '{}' at byte {} is none of the {} symbols of the vocabulary",
          text.substr(start, at - start), start, points_.size());
    tokens.push_back(static_cast<int32_t>(it - points_.begin()));
  }
  return tokens;
}

std::string Vocabulary::decode(int32_t token) const {
  check(token >= 0 && token < size(), "[text] token {} is outside the vocabulary of {} symbols", token, size());
  std::string text;
  if (is_bytes()) text += static_cast<char>(static_cast<unsigned char>(token));
  else append_utf8(text, points_[static_cast<size_t>(token)]);
  return text;
}

}  // namespace elinvar
