#include "data/bpe.h"

#include <algorithm>

#include "data/nfc.h"
#include "tensor/base/check.h"

namespace elinvar {

Bpe::Bpe(BpeParts parts)
    : parts_(std::move(parts)), specials_(parts_.specials), words_(parts_.words), byte_tokens_(256, -1) {
  by_bytes_.reserve(parts_.tokens.size());
  std::vector<bool> is_special(parts_.tokens.size());
  for (const auto& [name, token] : parts_.specials) {
    check_token(*this, token);
    is_special[static_cast<size_t>(token)] = true;
  }
  for (int32_t token = 0; token < size(); ++token) {
    const std::string& bytes = parts_.tokens[static_cast<size_t>(token)];
    if (is_special[static_cast<size_t>(token)]) continue;
    if (!bytes.empty()) by_bytes_.emplace(bytes, token);
    if (bytes.size() == 1 && byte_tokens_[static_cast<unsigned char>(bytes[0])] < 0)
      byte_tokens_[static_cast<unsigned char>(bytes[0])] = token;
  }
  for (size_t byte = 0; byte < 256; ++byte)
    if (byte_tokens_[byte] < 0)
      fail("[tokenizer] expected a token for each of the 256 bytes, found none for 0x{:02x}: not byte-level", byte);
  merges_ = MergeTable(parts_.merges.size());
  for (size_t i = 0; i < parts_.merges.size(); ++i) {
    const auto [left, right] = parts_.merges[i];
    check_token(*this, left);
    check_token(*this, right);
    const auto whole = by_bytes_.find(decode(left) + decode(right));
    if (whole == by_bytes_.end())
      fail("[tokenizer] merge {} makes '{}{}', which is no token", i, decode(left), decode(right));
    merges_.add(left, right, {static_cast<int32_t>(i), whole->second});
  }
}

std::vector<int32_t> Bpe::encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size() / 3);
  BpeEncoder(*this).encode(text, tokens);
  return tokens;
}

std::vector<int32_t> Bpe::encode_prompt(std::string_view text) const {
  std::vector<int32_t> tokens;
  BpeEncoder(*this).encode_prompt(text, tokens);
  return tokens;
}

std::string Bpe::decode(int32_t token) const {
  check_token(*this, token);
  return parts_.tokens[static_cast<size_t>(token)];
}

std::optional<int32_t> Bpe::special(const std::string& name) const {
  const auto found = parts_.specials.find(name);
  return found == parts_.specials.end() ? std::nullopt : std::optional(found->second);
}

std::optional<int32_t> Bpe::end_of_text() const {
  const std::optional<int32_t> end = special(kEndOfText);
  return end ? end : special("<|end_of_text|>");
}

void Bpe::describe(Hasher& hasher) const {
  hasher.add_integer(size());
  for (const std::string& bytes : parts_.tokens) hasher.add(bytes);
  for (const auto& [left, right] : parts_.merges)
    hasher.add_integer(static_cast<int64_t>(left) << 32 | static_cast<uint32_t>(right));
  hasher.add(pattern_of(parts_.pretokens));
  for (const bool flag : {parts_.prefix_space, parts_.whole_pieces}) hasher.add_integer(flag);
  for (const auto& [name, token] : parts_.words) {
    hasher.add(name);
    hasher.add_integer(token);
  }
  if (parts_.nfc) hasher.add("nfc");
}

void BpeEncoder::encode(std::string_view text, std::vector<int32_t>& tokens) {
  for (;;) {
    const Names::Found found = bpe_.words_.first_in(text);
    const std::string_view before = text.substr(0, found.at);
    if (bpe_.parts_.nfc) encode_between(nfc(before), tokens);
    else encode_between(before, tokens);
    if (!found.name) return;
    tokens.push_back(found.name->token);
    text.remove_prefix(found.at + found.name->text.size());
  }
}

void BpeEncoder::encode_prompt(std::string_view text, std::vector<int32_t>& tokens) {
  for (;;) {
    const Names::Found found = bpe_.specials_.first_in(text);
    encode(text.substr(0, found.at), tokens);
    if (!found.name) return;
    tokens.push_back(found.name->token);
    text.remove_prefix(found.at + found.name->text.size());
  }
}

void BpeEncoder::encode_between(std::string_view text, std::vector<int32_t>& tokens) {
  const Pretokens kind = bpe_.parts_.pretokens;
  std::string spaced;
  if (bpe_.parts_.prefix_space && !text.empty() && text[0] != ' ') {
    spaced = " ";
    spaced += text;
    text = spaced;
  }
  for (size_t at = 0; at < text.size();) {
    const size_t end = piece_end(kind, text, at);
    encode_piece(text.substr(at, end - at), tokens);
    at = end;
  }
}

void BpeEncoder::encode_piece(std::string_view piece, std::vector<int32_t>& tokens) {
  if (piece.size() == 1) {
    tokens.push_back(bpe_.byte_tokens_[static_cast<unsigned char>(piece[0])]);
    return;
  }
  if (piece.size() > KnownPieces::kMostBytes) {
    merge(piece, tokens);
    return;
  }
  if (const std::span<const int32_t> known = known_.find(piece); !known.empty()) {
    tokens.insert(tokens.end(), known.begin(), known.end());
    return;
  }
  const size_t before = tokens.size();
  merge(piece, tokens);
  known_.add(piece, std::span(tokens).subspan(before));
}

void BpeEncoder::merge(std::string_view piece, std::vector<int32_t>& tokens) {
  if (bpe_.parts_.whole_pieces) {
    const auto whole = bpe_.by_bytes_.find(piece);
    if (whole != bpe_.by_bytes_.end()) {
      tokens.push_back(whole->second);
      return;
    }
  }
  const auto consider = [&](int32_t place) {
    const int32_t after = symbols_[static_cast<size_t>(place)].after;
    if (after < 0) return;
    const int32_t left = symbols_[static_cast<size_t>(place)].token, right = symbols_[static_cast<size_t>(after)].token;
    const MergeTable::Merge* found = bpe_.merges_.find(left, right);
    if (!found) return;
    heap_.push_back({found->rank, place, left, right});
    std::push_heap(heap_.begin(), heap_.end());
  };
  const auto n = static_cast<int32_t>(piece.size());
  symbols_.clear();
  heap_.clear();
  for (int32_t i = 0; i < n; ++i)
    symbols_.push_back(
        {bpe_.byte_tokens_[static_cast<unsigned char>(piece[static_cast<size_t>(i)])], i - 1, i + 1 < n ? i + 1 : -1});
  for (int32_t i = 0; i < n; ++i) consider(i);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    const Candidate c = heap_.back();
    heap_.pop_back();
    Symbol& left = symbols_[static_cast<size_t>(c.place)];
    if (left.token != c.left || left.after < 0) continue;  // one of the two has merged with another meanwhile
    Symbol& right = symbols_[static_cast<size_t>(left.after)];
    if (right.token != c.right) continue;
    left.token = bpe_.merges_.find(c.left, c.right)->token;
    left.after = right.after;
    right.token = -1;
    if (left.after >= 0) symbols_[static_cast<size_t>(left.after)].before = c.place;
    if (left.before >= 0) consider(left.before);
    consider(c.place);
  }
  for (int32_t i = 0; i >= 0; i = symbols_[static_cast<size_t>(i)].after)
    tokens.push_back(symbols_[static_cast<size_t>(i)].token);
}

}  // namespace elinvar
