#pragma once
// The first stage of a byte-level tokenizer splits text into pieces (a word with the space before it, a number, a run
// of symbols, white space); no token crosses their borders. The reference implementations define pieces by regular
// expressions. These are the three that published tokenizers use, named by their first users:
//
//   gpt2    '(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   llama3  (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+
//           |\s+(?!\S)|\s+
//   qwen2   as llama3, but each numeral is a piece: \p{N}
//
// Bytes that are not UTF-8 count as symbols, one by one, so that any file can be encoded and decoded.
#include <cstddef>
#include <optional>
#include <string_view>

namespace elinvar {

enum class Pretokens { gpt2, llama3, qwen2 };
const char* pattern_of(Pretokens kind);
std::optional<Pretokens> pretokens_of(std::string_view pattern);  // null for any other pattern

// Returns the end of the piece that begins at `at`; at < text.size(). Pieces cover the text without gaps.
size_t piece_end(Pretokens kind, std::string_view text, size_t at);

}  // namespace elinvar
