#pragma once
// Learns a byte-level byte-pair encoding. It begins with the 256 bytes and repeatedly makes the most frequent pair of
// neighbours a token; of equally frequent pairs, the one with the lower numbers. The result depends on which texts were
// added and how often, not on their order.
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "data/bpe.h"

namespace elinvar {

struct BpeTraining {
  int64_t vocabulary = 32768;  // number of tokens; fewer if no pair is left that is frequent enough
  int64_t min_count = 2;       // how often a pair must occur
  Pretokens pretokens = Pretokens::gpt2;
  std::vector<std::string> specials = {kEndOfText};  // get the last numbers
};

class BpeTrainer {
 public:
  explicit BpeTrainer(BpeTraining options);
  void add(std::string_view text);
  Bpe train() const;  // throws UsageError if the vocabulary is too small for bytes and specials

 private:
  BpeTraining options_;
  std::unordered_map<std::string, int64_t, TextHash, std::equal_to<>> pieces_;
};

}  // namespace elinvar
