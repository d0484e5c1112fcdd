// Code that the forward and the backward pass of exact attention share, for any target (NUMERICS.md, rule E7).
#if defined(ELINVAR_EXACT_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ELINVAR_EXACT_ATTENTION_INL_H_
#undef ELINVAR_EXACT_ATTENTION_INL_H_
#else
#define ELINVAR_EXACT_ATTENTION_INL_H_
#endif

#include <hwy/cache_control.h>

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

// Rows of a head are far apart in memory, where processors do not foresee reads. Loops prefetch the row that comes
// kAhead rows later.
constexpr int64_t kAhead = 8;
template <class T>
void prefetch_row(const T* row, int64_t count) {
  for (int64_t i = 0; i < count; i += 64 / static_cast<int64_t>(sizeof(T))) hwy::Prefetch(row + i);
}

// Packs rows [first, last) of a head as pairs of rows, from which products sum over rows.
void pack_pairs_of_rows(const Head& head, int64_t first, int64_t last, PackedOperand<Pair>& to) {
  const Strips& strips = to.strips;
  for (int64_t k = 0; k < to.k_count; ++k) {
    const bool both = first + 2 * k + 1 < last;
    const auto* const x = reinterpret_cast<const int16_t*>(head.row(first + 2 * k));
    const auto* const y = both ? reinterpret_cast<const int16_t*>(head.row(first + 2 * k + 1)) : nullptr;
    for (int64_t i = kAhead; i < kAhead + 2; ++i) prefetch_row(head.row(first + 2 * k + i), head.width);
    for (int64_t s = 0; s < strips.count; ++s) {
      const int64_t begin = strips.begin(s), width = strips.width(s), exist = strips.exist(s);
      auto* const out = reinterpret_cast<int32_t*>(to.strip(s) + k * width);
      for (int64_t d = 0; d < exist; ++d) out[d] = pair_of(x[begin + d], both ? y[begin + d] : 0);
      std::fill(out + exist, out + width, 0);
    }
  }
}

// Returns exponents of the rows of a head, and 0 for those that `packed` is padded with.
std::vector<int32_t> column_exponents(const Head& head, const PackedOperand<Pair>& packed) {
  std::vector<int32_t> all = head.exponents_of(0, packed.strips.columns);
  all.resize(static_cast<size_t>(packed.strips.padded_columns()));
  return all;
}

// Weights or gradients of scores of a block of queries, rounded against the exponents of the values or keys that they
// multiply. Each query has a sum of its own, over the keys that it sees.
class Weights {
 public:
  Weights(int64_t keys, const int32_t* exponents)
      : ld_(keys / 2 + 1),
        rows_(kQueryBlock * ld_),
        scaled_(keys),
        scale_(static_cast<size_t>(keys)),
        row_exponents_(kQueryBlock),
        exponents_(exponents) {
    int32_t largest = INT32_MIN;
    for (int64_t i = 0; i < keys; ++i) most_.push_back(largest = std::max(largest, exponents[i]));
  }

  int64_t ld() const { return ld_; }  // pairs in a row
  const Pair* rows() const { return rows_.data(); }
  const int32_t* row_exponents() const { return row_exponents_.data(); }

  // Rounds the rows of queries [q0, q1) of `x`.
  void quantize(const AttentionShape& s, int64_t q0, int64_t q1, const float* x, int64_t x_step) {
    const int64_t limit = s.visible(q1 - 1);
    for (int64_t q = q0; q < q1; ++q) {
      const int64_t n = s.visible(q);
      auto* const row = reinterpret_cast<int16_t*>(rows_.data() + (q - q0) * ld_);
      row_exponents_[static_cast<size_t>(q - q0)] = quantize_row(x + (q - q0) * x_step, n, row);
      std::fill(row + n, row + limit + 1, int16_t{0});
    }
  }

 private:
  // Rounds x[0, n) (rule E2) and returns the exponent of the row.
  int32_t quantize_row(const float* x, int64_t n, int16_t* q) {
    if (n == 0) return kLeastExponent;
    scale_against(most_[static_cast<size_t>(n - 1)], n);
    const float* const scale = scale_.data();
    float* const scaled = scaled_.data();
    int32_t largest = 0;
    for (int64_t i = 0; i < n; ++i) {
      scaled[i] = x[i] * scale[i];
      largest = std::max(largest, magnitude(scaled[i]));
    }
    const int32_t exponent = exponent_of(largest);
    const float times = integer_scale(exponent);
    for (int64_t i = 0; i < n; ++i) q[i] = static_cast<int16_t>(quantized(scaled[i] * times));
    return exponent + scale_most_;
  }

  // Prepares the scales of the first n keys, of whose exponents `most` is the largest.
  void scale_against(int32_t most, int64_t n) {
    if (most != scale_most_) scale_count_ = 0;
    scale_most_ = most;
    for (; scale_count_ < n; ++scale_count_)
      scale_[static_cast<size_t>(scale_count_)] = relative_scale(exponents_[scale_count_], most);
  }

  int64_t ld_;
  Scratch<Pair> rows_;
  Scratch<float> scaled_;
  std::vector<float> scale_;  // of the first scale_count_ keys, relative to the exponent scale_most_
  int64_t scale_count_ = 0;
  int32_t scale_most_ = INT32_MIN;
  std::vector<int32_t> row_exponents_, most_;  // most_[i]: the largest exponent of the keys up to i
  const int32_t* exponents_;
};

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
