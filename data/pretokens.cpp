#include "data/pretokens.h"

#include "data/unicode_classes.h"
#include "data/utf8.h"

namespace elinvar {
namespace {

constexpr const char* kGpt2 = R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// GPT-2's original pattern.
constexpr const char* kGpt2First = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr char32_t kLongS = 0x17F;  // case folding maps it to s

struct Char {
  char32_t point;
  CharClass kind;
  size_t end;
};

Char char_at(std::string_view text, size_t at) {
  if (const auto lead = static_cast<unsigned char>(text[at]); lead < 0x80) return {lead, ascii_class(lead), at + 1};
  const CodePoint c = code_point(text, at);
  return {c.value, c.good ? class_of(c.value) : CharClass::other, at + c.bytes};
}

bool is_newline(char32_t point) { return point == '\r' || point == '\n'; }

// Returns the end of the longest run of one kind from `at` on.
size_t run_end(std::string_view text, size_t at, CharClass kind) {
  while (at < text.size()) {
    const Char c = char_at(text, at);
    if (c.kind != kind) break;
    at = c.end;
  }
  return at;
}

// Returns the length of s, t, m, d, re, ve or ll after an apostrophe at `at`; 0 if none of them follows.
size_t contraction_end(std::string_view text, size_t at, bool any_case) {
  const auto letter = [&](size_t i) -> char {
    if (i >= text.size()) return 0;
    const char c = text[i];
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  const char first = letter(at + 1), second = letter(at + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l'))
    return at + 3;
  if (any_case && at + 1 < text.size()) {
    const Char c = char_at(text, at + 1);
    if (c.point == kLongS) return c.end;
  }
  return 0;
}

// \s+(?!\S)|\s+ : white space, without its last character if a word follows, to which that may belong.
size_t space_end(std::string_view text, size_t at) {
  const size_t end = run_end(text, at, CharClass::space);
  if (end == text.size()) return end;
  size_t last = at;
  for (size_t next = at; next < end; next = char_at(text, next).end) last = next;
  return last == at ? end : last;
}

size_t gpt2_end(std::string_view text, size_t at) {
  if (text[at] == '\'')
    if (const size_t end = contraction_end(text, at, /*any_case=*/false)) return end;
  const Char first = char_at(text, at);
  if (first.point == ' ' && first.end < text.size()) {
    const Char next = char_at(text, first.end);
    if (next.kind != CharClass::space) return run_end(text, next.end, next.kind);
  }
  if (first.kind != CharClass::space) return run_end(text, first.end, first.kind);
  return space_end(text, at);
}

size_t llama3_end(std::string_view text, size_t at, int digits) {
  if (text[at] == '\'')
    if (const size_t end = contraction_end(text, at, /*any_case=*/true)) return end;
  const Char first = char_at(text, at);
  const auto next_kind = [&] { return char_at(text, first.end).kind; };
  const bool more = first.end < text.size();
  if (first.kind == CharClass::letter) return run_end(text, first.end, CharClass::letter);
  if (first.kind == CharClass::number) {
    size_t end = first.end;
    for (int i = 1; i < digits && end < text.size(); ++i) {
      const Char c = char_at(text, end);
      if (c.kind != CharClass::number) break;
      end = c.end;
    }
    return end;
  }
  if (more && !is_newline(first.point) && next_kind() == CharClass::letter)
    return run_end(text, first.end, CharClass::letter);
  const bool signs_follow = first.point == ' ' && more && next_kind() == CharClass::other;
  if (first.kind == CharClass::other || signs_follow) {
    size_t end = run_end(text, first.end, CharClass::other);
    while (end < text.size() && is_newline(static_cast<unsigned char>(text[end]))) ++end;
    return end;
  }
  const size_t end = run_end(text, at, CharClass::space);
  const size_t newline = text.substr(at, end - at).find_last_of("\r\n");
  return newline != std::string_view::npos ? at + newline + 1 : space_end(text, at);
}

}  // namespace

const char* pattern_of(Pretokens kind) {
  return kind == Pretokens::gpt2 ? kGpt2 : kind == Pretokens::llama3 ? kLlama3 : kQwen2;
}

std::optional<Pretokens> pretokens_of(std::string_view pattern) {
  if (pattern == kGpt2First) return Pretokens::gpt2;
  for (const Pretokens kind : {Pretokens::gpt2, Pretokens::llama3, Pretokens::qwen2})
    if (pattern == pattern_of(kind)) return kind;
  return std::nullopt;
}

size_t piece_end(Pretokens kind, std::string_view text, size_t at) {
  return kind == Pretokens::gpt2 ? gpt2_end(text, at) : llama3_end(text, at, kind == Pretokens::llama3 ? 3 : 1);
}

}  // namespace elinvar
