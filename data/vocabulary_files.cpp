// Writes vocabularies of bytes and of characters as tokenizer.json.
#include <nlohmann/json.hpp>

#include "data/bpe.h"
#include "data/utf8.h"
#include "data/vocabulary.h"

namespace elinvar {

// Byte-level BPE without merges.
std::string ByteVocabulary::tokenizer_json() const {
  BpeParts parts;
  for (int32_t token = 0; token < size(); ++token) parts.tokens.push_back(decode(token));
  return Bpe(std::move(parts)).tokenizer_json();
}

// Makes each code point a word. The token for unknown words does not exist, so `tokenizers` refuse other code points.
std::string CharacterVocabulary::tokenizer_json() const {
  using Ordered = nlohmann::ordered_json;
  Ordered::object_t vocabulary;  // filled by appending, because inserting searches it each time
  for (int32_t token = 0; token < size(); ++token) vocabulary.emplace_back(decode(token), token);
  const Ordered file = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", Ordered::array()},
      {"normalizer", nullptr},
      {"pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "[\\s\\S]"}}}, {"behavior", "Isolated"}, {"invert", false}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "Fuse"}}},
      {"model", {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "<unknown>"}}}};
  return file.dump(1) + "\n";
}

}  // namespace elinvar
