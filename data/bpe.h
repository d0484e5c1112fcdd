#pragma once
// Byte-level byte-pair encoding (Sennrich et al. 2016; over bytes: Radford et al. 2019, GPT-2): every text of any bytes
// has tokens, and they give it back (its normal form C, where a tokenizer asks for that: data/nfc.h). A text falls into
// pieces (data/pretokens.h); in each, of all neighbours that may merge, those that merge first in the vocabulary's list
// do, the leftmost first, until none is left.
//
// Read from what others publish, and written for them:
//   tokenizer.json                          of Hugging Face's `tokenizers`: byte-level BPE (GPT-2, LLaMA 3, Qwen 2 ..).
//                                           What it adds around a text (a post_processor) is not followed
//   encoder.json with vocab.bpe beside it   as GPT-2 came; also vocab.json with merges.txt, also with a prefix
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

inline constexpr const char* kEndOfText = "<|endoftext|>";  // the special token between documents, of most vocabularies

struct BpeParts {
  std::vector<std::string> tokens;                  // the bytes of each; empty: no such token
  std::vector<std::pair<int32_t, int32_t>> merges;  // the first merges first
  std::map<std::string, int32_t> specials = {};     // tokens that no text makes, by name
  std::map<std::string, int32_t> words = {};        // tokens that are cut out of a text wherever it has their name
  Pretokens pretokens = Pretokens::gpt2;
  bool nfc = false;           // what lies between these is brought to normal form C
  bool prefix_space = false;  // a space is put before a text that begins with none
  bool whole_pieces = false;  // a piece that is a token is that token, whatever merges say
};

class Bpe final : public Vocabulary {
 public:
  // Throws Failure for parts that do not fit together: a byte without a token, a merge to what is no token.
  explicit Bpe(BpeParts parts);
  // One of the files above, or a folder with one. Throws Failure, naming the file, for what it cannot follow exactly.
  static std::unique_ptr<Bpe> load(const std::filesystem::path& path);
  void save(const std::filesystem::path& path) const;  // as tokenizer.json

  int64_t size() const override { return static_cast<int64_t>(parts_.tokens.size()); }
  std::vector<int32_t> encode(std::string_view text) const override;  // any number of threads at once
  std::vector<int32_t> encode_prompt(std::string_view text) const override;
  std::string decode(int32_t token) const override;
  std::optional<int32_t> end_of_text() const override;  // "<|endoftext|>", or LLaMA 3's "<|end_of_text|>"
  void describe(Hasher& hasher) const override;

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

// Encodes many texts in one thread, remembering pieces that come again.
class BpeEncoder {
 public:
  explicit BpeEncoder(const Bpe& bpe) : bpe_(bpe) {}
  void encode(std::string_view text, std::vector<int32_t>& tokens);  // adds to them

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
