#pragma once
// Choosing the next token by what a network says of it.
#include <cstdint>
#include <span>

#include "tensor/tensor.h"

namespace elinvar {

// In this order:
struct Sampling {
  double repetition_penalty = 1.0;  // logits of tokens that are seen are divided by it, negative ones multiplied
  double temperature = 1.0;         // logits are divided by it; 0: the likeliest token, and that is all
  int64_t top_k = 0;                // only so many of the likeliest tokens; 0: all
  double top_p = 1.0;               // of these the fewest likeliest that have this share of their probability; 1: all
};

// The token of `logits` (n) float32 whose share of the distribution holds `u` in [0, 1): softmax, added up in binary64
// in the order of token numbers. At equal logits the lower number is the likelier.
int32_t draw(const Tensor& logits, std::span<const int32_t> seen, const Sampling& sampling, float u);

}  // namespace elinvar
