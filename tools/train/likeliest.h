#pragma once
// The classes, or next tokens, that a network holds for the likeliest.
#include <cstdint>
#include <vector>

#include "tensor/tensor.h"

namespace elinvar {

struct Likely {
  int64_t index;      // of the class, or the token
  float probability;  // softmax of its logit
};

// Returns the `most` likeliest, or all if there are fewer, of each row of logits (rows, classes) float32 on the CPU,
// the likeliest first. Of equal logits, the lower index counts as the likelier; NaN counts as the least likely.
std::vector<std::vector<Likely>> likeliest(const Tensor& logits, int64_t most);

}  // namespace elinvar
