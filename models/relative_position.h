#pragma once
// Relative positions of the tokens in a square window, as Swin transformers number them: token (y, x) sees token (v, u)
// at number (y - v + window - 1) * (2 * window - 1) + (x - u + window - 1).
#include "tensor/tensor.h"

namespace elinvar {

// Returns the number for each pair of tokens (query, key), (window^4) int64.
inline Tensor relative_positions(int64_t window) {
  const int64_t tokens = window * window;
  Tensor numbers = Tensor::empty({tokens * tokens}, DType::i64);
  int64_t* next = numbers.data<int64_t>();
  for (int64_t i = 0; i < tokens; ++i)
    for (int64_t j = 0; j < tokens; ++j) {
      const int64_t down = i / window - j / window + window - 1, right = i % window - j % window + window - 1;
      *next++ = down * (2 * window - 1) + right;
    }
  return numbers;
}

}  // namespace elinvar
