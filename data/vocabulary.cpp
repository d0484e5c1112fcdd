#include "data/vocabulary.h"

#include <algorithm>

#include "data/utf8.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

// The code point at text[at], moving `at` past it.
char32_t next_point(std::string_view text, size_t& at) {
  const CodePoint point = code_point(text, at);
  if (at == 0 && (text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff")))
    fail("[text] expected UTF-8, found UTF-16: convert the text, for example with iconv -f UTF-16 -t UTF-8");
  if (!point.good)
    fail("[text] expected UTF-8, found a malformed character at byte {}; tokens = \"byte\" reads any text", at);
  at += point.bytes;
  return point.value;
}

}  // namespace

void check_token(const Vocabulary& vocabulary, int32_t token) {
  check(token >= 0 && token < vocabulary.size(), "[text] token {} is outside the vocabulary of {} symbols", token,
        vocabulary.size());
}

std::vector<int32_t> ByteVocabulary::encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  for (char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::string ByteVocabulary::decode(int32_t token) const {
  check_token(*this, token);
  return std::string(1, static_cast<char>(static_cast<unsigned char>(token)));
}

void ByteVocabulary::describe(Hasher& hasher) const {
  hasher.add_integer(size());
  hasher.add("");
}

CharacterVocabulary::CharacterVocabulary(std::string_view text) {
  check(!text.empty(), "[text] a vocabulary of characters needs a text that is not empty");
  std::vector<bool> seen(0x110000);
  for (size_t at = 0; at < text.size();) seen[next_point(text, at)] = true;
  for (size_t p = 0; p < seen.size(); ++p)
    if (seen[p]) points_.push_back(static_cast<char32_t>(p));
}

std::string CharacterVocabulary::symbols() const {
  std::string text;
  for (char32_t p : points_) append_utf8(text, p);
  return text;
}

std::vector<int32_t> CharacterVocabulary::encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
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

std::string CharacterVocabulary::decode(int32_t token) const {
  check_token(*this, token);
  std::string text;
  append_utf8(text, points_[static_cast<size_t>(token)]);
  return text;
}

void CharacterVocabulary::describe(Hasher& hasher) const {
  hasher.add_integer(size());
  hasher.add(symbols());
}

}  // namespace elinvar
