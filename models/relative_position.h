#pragma once
// Numbers of relative positions, for biases of attention that are looked up by them.
#include <algorithm>
#include <cstdlib>

#include "tensor/tensor.h"

namespace elinvar {

// Numbers the relative positions of tokens in a square window, as Swin transformers do: token (y, x) sees token (v, u)
// at number (y - v + window - 1) * (2 * window - 1) + (x - u + window - 1). Returns the number for each pair of tokens
// (query, key), (window^4) int64.
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

// Returns the bucket of the keys at this distance after the query, as T5 numbers them: a bucket for each short
// distance, and longer ones in buckets whose bounds are a geometric sequence up to `farthest`. With `both`, half of the
// buckets are for keys after the query; otherwise these are all in bucket 0. Powers of integers are compared instead of
// logarithms, which differ between machines. Requires at most 64 buckets and `farthest` of at most 2^20.
inline int64_t relative_bucket(int64_t distance, bool both, int64_t buckets, int64_t farthest) {
  const int64_t all = both ? buckets / 2 : buckets, first = both && distance > 0 ? all : 0;
  const int64_t far = both ? std::abs(distance) : std::max<int64_t>(-distance, 0);
  const int64_t exact = all / 2, steps = all - exact;
  if (far < exact) return first + far;
  if (far >= farthest) return first + all - 1;
  const auto power = [](int64_t base, int64_t exponent) {
    double y = 1;
    for (int64_t i = 0; i < exponent; ++i) y *= static_cast<double>(base);
    return y;
  };
  // The largest k with log(far / exact) / log(farthest / exact) * steps >= k.
  int64_t k = 0;
  while (power(far, steps) * power(exact, k + 1) >= power(farthest, k + 1) * power(exact, steps)) ++k;
  return first + exact + std::min(k, steps - 1);
}

}  // namespace elinvar
