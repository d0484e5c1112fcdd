#pragma once
// Chooses the next token by a network's logits.
#include <cstdint>
#include <span>

#include "tensor/tensor.h"

namespace elinvar {

// Applied in this order:
struct Sampling {
  double repetition_penalty = 1.0;  // divides positive logits of tokens that were seen, multiplies negative ones
  double temperature = 1.0;         // divides logits; 0: always the likeliest token
  int64_t top_k = 0;                // keeps this many of the likeliest tokens; 0: all
  double top_p = 1.0;               // of these, keeps the fewest likeliest with this share of probability; 1: all
};

// Returns the token of `logits` (n) float32 whose interval of the cumulative distribution contains `u` in [0, 1). The
// distribution is their softmax, added up in binary64 in the order of token numbers. Of equal logits, the lower number
// counts as the likelier.
int32_t draw(const Tensor& logits, std::span<const int32_t> seen, const Sampling& sampling, float u);

}  // namespace elinvar
