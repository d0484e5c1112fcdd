#pragma once
// Keys and values of the tokens that a language model has seen, so that the tokens after them cost only themselves.
//
//   AttentionCache cache(context);
//   Context forward{.cache = &cache};
//   const NoGrad constant;
//   network.forward(prompt, forward);   // (B, T): logits of its last token
//   network.forward(next, forward);     // (B, 1)
//
// Logits have the bits that they have without a cache, where all tokens are computed at once: neither the number of
// rows of a product nor keys that a query does not see are part of a sum (NUMERICS.md, rules 7, 8 and 14).
#include <cstdint>
#include <vector>

#include "autograd/var.h"

namespace elinvar {

class AttentionCache {
 public:
  // At most `capacity` tokens. Each layer takes memory for all of them when it is first used.
  explicit AttentionCache(int64_t capacity) : capacity_(capacity) {}

  int64_t capacity() const { return capacity_; }
  int64_t length() const { return length_; }  // tokens of which every layer has keys and values
  void keep(int64_t length);                  // forgets all but the first `length`

  // For networks, in a forward pass over T tokens more, each layer once. Queries (B, T, H, D), keys and values
  // (B, T, G, D) of these tokens -> (B, T, H, D), by causal attention to all tokens so far. UsageError beyond the
  // capacity, and where a gradient is recorded.
  Var attend(int64_t layer, const Var& queries, const Var& keys, const Var& values);
  // The same of qkv (B, T, 3 * C): queries, keys and values one after another, each of `heads` heads -> (B, T, C).
  Var attend(int64_t layer, const Var& qkv, int64_t heads);
  // After the last layer: the T tokens are seen. Of x (B, T, C) what belongs to the last of them, (B, 1, C).
  Var advance(const Var& x);

 private:
  struct Layer {
    Tensor keys, values;  // (B, capacity, G, D)
  };
  int64_t capacity_, length_ = 0;
  std::vector<Layer> layers_;
};

}  // namespace elinvar
