#pragma once
// Factors of products of which some sums are a negative zero, because all of their terms underflow: those of sums are
// positive (NUMERICS.md, rule 8).
#include <cmath>

#include "tensor/tensor.h"

namespace elinvar::test {

// Makes every third line tiny and of this sign: the product of two such lines of different sign is a negative zero.
// Element i belongs to line i / stride % lines.
inline Tensor with_tiny(Tensor x, int64_t lines, int64_t stride, float sign) {
  for (int64_t i = 0; i < x.numel(); ++i)
    if (i / stride % lines % 3 == 0) x.data<float>()[i] = sign * 1e-30f * (0.5f + std::abs(x.data<float>()[i]));
  return x;
}

}  // namespace elinvar::test
