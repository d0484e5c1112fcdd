#pragma once
// Learns a byte-level byte-pair encoding: beginning with the 256 bytes, the pair of neighbours that is found most often
// becomes a token, again and again. Where several are found equally often, the one with the lower numbers does. The
// result depends on which texts were added and how often, not on their order.
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "data/bpe.h"

namespace elinvar {

struct BpeTraining {
  int64_t vocabulary = 32768;  // tokens in all; fewer if no pair is left that is found often enough
  int64_t min_count = 2;       // a pair must be found so often
  Pretokens pretokens = Pretokens::gpt2;
  std::vector<std::string> specials = {kEndOfText};  // get the last numbers
};

class BpeTrainer {
 public:
  explicit BpeTrainer(BpeTraining options);
  void add(std::string_view text);
  Bpe train() const;  // UsageError if the vocabulary is too small for bytes and specials

 private:
  BpeTraining options_;
  std::unordered_map<std::string, int64_t, TextHash, std::equal_to<>> pieces_;
};

}  // namespace elinvar
