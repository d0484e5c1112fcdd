#pragma once
// The most probable classes, or next tokens, according to a network's logits.
#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace elinvar {

struct Likely {
  int64_t index;      // of the class, or the token
  float probability;  // softmax of its logit
};

// Returns, for each row of logits, the classes with the largest logits in descending order: at most `most`. `logits` is
// (rows, classes), float32, on the CPU. Equal logits are in the order of their indices, and NaN comes last.
std::vector<std::vector<Likely>> likeliest(const Tensor& logits, int64_t most);

}  // namespace elinvar
