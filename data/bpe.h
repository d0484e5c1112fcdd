#pragma once
// Byte-level byte-pair encoding (Sennrich et al. 2016; over bytes: Radford et al. 2019, GPT-2). Any sequence of bytes
// has tokens, which decode to the same bytes (or to their normal form C, if a tokenizer asks for that: data/nfc.h). A
// text is split into pieces (data/pretokens.h). Within a piece, the pair of neighbours that comes first in the list of
// merges is merged, the leftmost first, until no pair is left.
//
// Formats that are read and written:
//   tokenizer.json                          of Hugging Face's `tokenizers`: byte-level BPE (GPT-2, LLaMA 3, Qwen 2 ..).
//                                           What it adds around a text (a post_processor) is ignored
//   encoder.json with vocab.bpe             as GPT-2 was published; also vocab.json with merges.txt, also with a prefix
//                                           ("gpt2-encoder.json", "gpt2-vocab.bpe")
#include <filesystem>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

#include "data/known_pieces.h"
#include "data/merge_table.h"
#include "data/names.h"
#include "data/pretokens.h"
#include "data/vocabulary.h"

namespace elinvar {

inline constexpr const char* kEndOfText = "<|endoftext|>";  // in most vocabularies, the special token between documents

struct BpeParts {
  std::vector<std::string> tokens;                  // the bytes of each; empty: no such token
  std::vector<std::pair<int32_t, int32_t>> merges;  // by priority, the first merges first
  std::map<std::string, int32_t> specials = {};     // tokens that encode() never returns, by name
  std::map<std::string, int32_t> words = {};        // tokens that replace their name wherever a text has it
  Pretokens pretokens = Pretokens::gpt2;
  bool nfc = false;           // text between `words` is converted to normal form C
  bool prefix_space = false;  // a space is inserted before a text that begins with none
  bool whole_pieces = false;  // a piece that equals a token becomes it without merges
};

class Bpe final : public Vocabulary {
 public:
  // Throws Failure for inconsistent parts: a byte without a token, or a merge into something that is not a token.
  explicit Bpe(BpeParts parts);
  // Loads one of the files above, or a folder with one. Throws Failure, which names the file, for anything that it
  // cannot reproduce exactly.
  static std::unique_ptr<Bpe> load(const std::filesystem::path& path);
  void save(const std::filesystem::path& path) const;  // as tokenizer.json

  int64_t size() const override { return static_cast<int64_t>(parts_.tokens.size()); }
  std::vector<int32_t> encode(std::string_view text) const override;  // thread-safe
  std::vector<int32_t> encode_prompt(std::string_view text) const override;
  std::string decode(int32_t token) const override;
  std::optional<int32_t> end_of_text() const override;  // "<|endoftext|>", or LLaMA 3's "<|end_of_text|>"
  void describe(Hasher& hasher) const override;
  std::string tokenizer_json() const override;

  const BpeParts& parts() const { return parts_; }
  std::optional<int32_t> special(const std::string& name) const;

 private:
  friend class BpeEncoder;
  BpeParts parts_;
  Names specials_, words_;
  std::vector<int32_t> byte_tokens_;  // of each byte
  MergeTable merges_;
  std::unordered_map<std::string_view, int32_t> by_bytes_;  // views of parts_.tokens
};

// Encodes many texts in one thread and remembers pieces that recur.
class BpeEncoder {
 public:
  explicit BpeEncoder(const Bpe& bpe) : bpe_(bpe) {}
  void encode(std::string_view text, std::vector<int32_t>& tokens);         // appends
  void encode_prompt(std::string_view text, std::vector<int32_t>& tokens);  // with special tokens; appends

 private:
  struct Symbol {
    int32_t token;
    int32_t before, after;  // neighbours, by place; -1: none
  };
  struct Candidate {
    int32_t rank, place, left, right;
    bool operator<(const Candidate& o) const { return rank != o.rank ? rank > o.rank : place > o.place; }
  };
  void encode_between(std::string_view text, std::vector<int32_t>& tokens);
  void encode_piece(std::string_view piece, std::vector<int32_t>& tokens);
  void merge(std::string_view piece, std::vector<int32_t>& tokens);

  const Bpe& bpe_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
  KnownPieces known_;
};

}  // namespace elinvar
