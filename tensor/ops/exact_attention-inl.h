// Code that the forward and the backward pass of exact attention share, for any target (NUMERICS.md, rule E7).
#if defined(ELINVAR_EXACT_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELINVAR_EXACT_ATTENTION_INL_H_
#undef ELINVAR_EXACT_ATTENTION_INL_H_
#else
#define ELINVAR_EXACT_ATTENTION_INL_H_
#endif

#include <algorithm>
#include <vector>

#include "tensor/ops/attention_products-inl.h"
#include "tensor/ops/attention_rows-inl.h"
#include "tensor/ops/exact_attention.h"
#include "tensor/quantize-inl.h"
#include "tensor/scratch.h"

namespace elinvar {
#ifndef ELINVAR_TENSOR_OPS_EXACT_ATTENTION_ONCE_
#define ELINVAR_TENSOR_OPS_EXACT_ATTENTION_ONCE_
namespace {

static_assert(kQueryBlock == kExactQueryBlock);

// One head: rows over time.
struct Head {
  const Pair* q;
  const int32_t* exponents;
  int64_t time, width;

  Head(const QuantizedHeads& all, int64_t b, int64_t h)
      : q(static_cast<const Pair*>(all.q) + (b * all.batch + h * all.head) * all.width),
        exponents(all.exponents + b * all.batch + h * all.head),
        time(all.time),
        width(all.width) {}
  const Pair* row(int64_t t) const { return q + t * time * width; }
  int32_t exponent(int64_t t) const { return exponents[t * time]; }
  std::vector<int32_t> exponents_of(int64_t first, int64_t last) const {
    std::vector<int32_t> all;
    for (int64_t t = first; t < last; ++t) all.push_back(exponent(t));
    return all;
  }
};

}  // namespace
#endif
}  // namespace elinvar

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {
namespace {

// Packs rows [first, last) of a head as pairs of rows, from which products sum over rows.
void pack_pairs_of_rows(const Head& head, int64_t first, int64_t last, PackedOperand<Pair>& to, int64_t size) {
  std::vector<int32_t> pairs(static_cast<size_t>(to.k_count * size));
  for (int64_t k = 0; k < to.k_count; ++k) {
    const auto* x = reinterpret_cast<const int16_t*>(head.row(first + 2 * k));
    int32_t* const out = pairs.data() + k * size;
    if (first + 2 * k + 1 < last) {
      const auto* y = reinterpret_cast<const int16_t*>(head.row(first + 2 * k + 1));
      for (int64_t d = 0; d < size; ++d) out[d] = pair_of(x[d], y[d]);
    } else {
      for (int64_t d = 0; d < size; ++d) out[d] = pair_of(x[d], 0);
    }
  }
  to.pack(reinterpret_cast<const Pair*>(pairs.data()), size, 1);
}

// Rounds x[0, n) against `against` (rule E2) and returns the exponent of the row; n is rounded up to whole pairs.
int32_t quantize_row(const float* x, const int32_t* against, int32_t most, int64_t n, float* scaled, int16_t* q) {
  int32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    scaled[i] = x[i] * relative_scale(against[i], most);
    largest = std::max(largest, magnitude(scaled[i]));
  }
  const int32_t exponent = exponent_of(largest);
  const float times = integer_scale(exponent);
  for (int64_t i = 0; i < n; ++i) q[i] = static_cast<int16_t>(quantized(scaled[i] * times));
  if (n % 2 != 0) q[n] = 0;
  return exponent + most;
}

// Scratch of one thread for products that sum over keys, and over the queries of a block.
struct Weights {
  int64_t ld;  // pairs in a row of queries
  Scratch<Pair> rows;
  Scratch<float> scaled;
  std::vector<int32_t> row_exponents, most;  // most[i]: the largest exponent of the keys up to i

  Weights(int64_t keys, const std::vector<int32_t>& key_exponents)
      : ld(keys / 2 + 1), rows(kQueryBlock * ld), scaled(keys), row_exponents(kQueryBlock) {
    int32_t largest = INT32_MIN;
    for (const int32_t e : key_exponents) most.push_back(largest = std::max(largest, e));
  }

  // Rounds the rows of queries [q0, q1) of `x` against the exponents of the keys that they see.
  void quantize(const AttentionShape& s, int64_t q0, int64_t q1, const float* x, int64_t x_step,
                const std::vector<int32_t>& key_exponents) {
    for (int64_t q = q0; q < q1; ++q) {
      const int64_t n = s.visible(q), limit = s.visible(q1 - 1);
      auto* const row = reinterpret_cast<int16_t*>(rows.data() + (q - q0) * ld);
      row_exponents[static_cast<size_t>(q - q0)] =
          n == 0 ? kLeastExponent
                 : quantize_row(x + (q - q0) * x_step, key_exponents.data(), most[static_cast<size_t>(n - 1)], n,
                                scaled.data(), row);
      std::fill(row + n, row + limit + 1, int16_t{0});
    }
  }
};

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
