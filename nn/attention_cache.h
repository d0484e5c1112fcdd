#pragma once
// Caches the keys and values of the tokens that a language model has seen, so that only new tokens are computed.
//
//   AttentionCache cache(context);
//   Context forward{.cache = &cache};
//   const NoGrad constant;
//   network.forward(prompt, forward);   // (B, T): logits of its last token
//   network.forward(next, forward);     // (B, 1)
//
// Logits have the same bits as without a cache, because no sum depends on the number of rows of a product or on keys
// that a query does not see (NUMERICS.md, rules 7, 8 and 14).
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "autograd/precision.h"
#include "autograd/var.h"

namespace elinvar {

class AttentionCache {
 public:
  // For at most `capacity` tokens. Each slot allocates memory for all of them when it is first used.
  explicit AttentionCache(int64_t capacity) : capacity_(capacity) {}

  int64_t capacity() const { return capacity_; }
  int64_t length() const { return length_; }          // tokens of which every slot has keys and values
  Precision precision() const { return precision_; }  // of the products that made them
  void keep(int64_t length);                          // forgets all but the first `length`

  // For networks: each attention, that is each shard of each layer, has a slot, counted from 0, and calls it once in a
  // forward pass over T more tokens. Queries (B, T, H, D), keys and values (B, T, G, D) of these tokens give
  // (B, T, H, D), the causal attention to all tokens so far. Throws UsageError beyond the capacity, while gradients are
  // recorded, and if products of another precision made the keys of earlier tokens.
  Var attend(int64_t slot, const Var& queries, const Var& keys, const Var& values);
  // The same for qkv (B, T, 3 * C), that is queries, keys and values of `heads` heads each -> (B, T, C).
  Var attend(int64_t slot, const Var& qkv, int64_t heads);
  // The same without the attention itself: returns the keys and values of all tokens so far.
  std::pair<Var, Var> extend(int64_t slot, const Var& keys, const Var& values);
  // Returns values that do not depend on the tokens, like the encoder's output of a network with two stacks. They have
  // a place, counted from 0. If no token has been seen yet, `make` gives them, and they are kept for later tokens.
  const std::vector<Var>& once(int64_t place, const std::function<std::vector<Var>()>& make);
  // Call it after the last layer; it counts the T tokens as seen. Returns the part of x (B, T, C) for the last token,
  // (B, 1, C).
  Var advance(const Var& x);

 private:
  struct Slot {
    Tensor keys, values;  // (B, capacity, G, D)
  };
  int64_t capacity_, length_ = 0;
  Precision precision_ = Precision::portable;
  std::vector<Slot> slots_;
  std::vector<std::vector<Var>> once_;
};

}  // namespace elinvar
