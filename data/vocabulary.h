#pragma once
// Maps the symbols of a text to numbers: the 256 bytes, the code points that occur, or the tokens of a byte-pair
// encoding (data/bpe.h).
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/digest.h"

namespace elinvar {

class Vocabulary {
 public:
  virtual ~Vocabulary() = default;
  virtual int64_t size() const = 0;  // tokens are in [0, size())
  // Throws UsageError for text that has no symbol.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // Like encode(), but names of special tokens ("<|endoftext|>") become these tokens.
  virtual std::vector<int32_t> encode_prompt(std::string_view text) const { return encode(text); }
  virtual std::string decode(int32_t token) const = 0;  // throws UsageError if out of range
  // The token that separates documents, if there is one.
  virtual std::optional<int32_t> end_of_text() const { return std::nullopt; }
  virtual void describe(Hasher& hasher) const = 0;  // adds what identifies it
  // Returns the text of a tokenizer.json for Hugging Face's `tokenizers`, which then encode texts as encode_prompt()
  // does; "" if the format cannot express the vocabulary.
  virtual std::string tokenizer_json() const { return ""; }

  template <class Tokens>
  std::string decode_all(const Tokens& tokens) const {
    std::string text;
    for (auto token : tokens) text += decode(static_cast<int32_t>(token));
    return text;
  }
};

class ByteVocabulary final : public Vocabulary {
 public:
  int64_t size() const override { return 256; }
  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(int32_t token) const override;
  void describe(Hasher& hasher) const override;
  std::string tokenizer_json() const override;
};

// The code points of a text, each once, ascending.
class CharacterVocabulary final : public Vocabulary {
 public:
  explicit CharacterVocabulary(
      std::string_view text);  // UTF-8; throws Failure where it is malformed, with the position
  int64_t size() const override { return static_cast<int64_t>(points_.size()); }
  std::string symbols() const;  // UTF-8; a vocabulary made of it equals this one
  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(int32_t token) const override;
  void describe(Hasher& hasher) const override;
  std::string tokenizer_json() const override;

 private:
  std::vector<char32_t> points_;
};

// Throws UsageError unless the token is in the vocabulary.
void check_token(const Vocabulary& vocabulary, int32_t token);

}  // namespace elinvar
