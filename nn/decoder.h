#pragma once
// Computes a language model's logits for the token after a text, for texts that grow one token at a time.
#include <cstdint>
#include <span>
#include <vector>

#include "nn/attention_cache.h"
#include "nn/network.h"

namespace elinvar {

class Decoder {
 public:
  // For a network that sees at most `context` tokens. With `cached`, if network.continues(), results for tokens that
  // are still seen are kept; otherwise each call computes all tokens. The bits are the same.
  Decoder(const Network& network, int64_t context, bool cached = true);

  // Returns the logits (vocabulary), on the CPU, for the token after these, of which there must be at least one. Tokens
  // that the previous call began with are not computed again, unless the precision of products has changed.
  Tensor logits(std::span<const int32_t> tokens);

  // Returns the index of the first token that is seen. When there are more than `context` tokens, the older half of the
  // context is dropped at once, and the rest is computed again, because its positions changed. So at least half of the
  // context is always seen, and the cost is spread over half a context of tokens.
  static int64_t first_seen(int64_t tokens, int64_t context);

 private:
  const Network& network_;
  int64_t context_;
  bool cached_;
  AttentionCache cache_;
  std::vector<int32_t> held_;  // the tokens in the cache
};

}  // namespace elinvar
