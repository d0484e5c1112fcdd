#pragma once
// What a language model says about the token after a text, for texts that grow by a token at a time.
#include <cstdint>
#include <span>
#include <vector>

#include "nn/attention_cache.h"
#include "nn/network.h"

namespace elinvar {

class Decoder {
 public:
  // Of a network that sees at most `context` tokens. With `cached`, and where network.continues(), what was computed
  // for tokens that are still seen is kept; otherwise each call computes all of them. The bits are the same.
  Decoder(const Network& network, int64_t context, bool cached = true);

  // The logits (vocabulary), on the CPU, of what follows these tokens, at least one. Tokens with which the call before
  // began too are not computed again.
  Tensor logits(std::span<const int32_t> tokens);

  // The first of so many tokens that is seen. When more than `context` are there, the older half of the context is
  // forgotten at once, and what remains is computed anew, as its positions are other ones: at least half of the context
  // is always seen, and the cost of this is shared by half a context of tokens.
  static int64_t first_seen(int64_t tokens, int64_t context);

 private:
  const Network& network_;
  int64_t context_;
  bool cached_;
  AttentionCache cache_;
  std::vector<int32_t> held_;  // the tokens in the cache
};

}  // namespace elinvar
