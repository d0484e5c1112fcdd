#pragma once
// Attention of sequences of different lengths in one batch: keys beyond a sequence's length are not seen.
#include <cmath>
#include <vector>

#include "autograd/linear.h"
#include "autograd/pointwise.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "tensor/base/check.h"
#include "tensor/graph.h"

namespace elinvar {

// Returns what to add to scores (B, H, Tq, Tk): (B, 1, 1, Tk) with 0 for keys below their sequence's length and -1e30,
// whose power of e is 0, for others. `lengths` (B) int32 must be from 1 to Tk.
inline Tensor length_mask(const Tensor& lengths, int64_t keys, Device device) {
  const auto make = [keys](std::span<const Tensor> given) {
    const Tensor counts = given[0].to_contiguous();
    Tensor mask = Tensor::zeros({counts.numel(), 1, 1, keys});
    for (int64_t b = 0; b < counts.numel(); ++b) {
      const int32_t length = counts.data<int32_t>()[b];
      check(length >= 1 && length <= keys, "[attention] length {} of sequence {} is not from 1 to {}", length, b, keys);
      for (int64_t t = length; t < keys; ++t) mask.data<float>()[b * keys + t] = -1e30f;
    }
    return std::vector{mask};
  };
  return derived({lengths.to(Device{})}, make)[0].to(device);
}

// q (B, Tq, H, D), k and v (B, Tk, H, D) -> (B, Tq, H, D). The scores are in memory; softmax(q k / sqrt(D) + mask) is
// computed by the functions of autograd/ one after another.
inline Var masked_attention(const Var& q, const Var& k, const Var& v, const Tensor& mask) {
  const Var scores = matmul(permute(q, {0, 2, 1, 3}), permute(k, {0, 2, 3, 1}));
  const double scale = 1 / std::sqrt(static_cast<double>(q.dim(3)));
  return permute(matmul(softmax(scores * scale + Var(mask)), permute(v, {0, 2, 1, 3})), {0, 2, 1, 3});
}

}  // namespace elinvar
