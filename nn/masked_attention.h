#pragma once
// Attention whose scores get something added before the softmax: masks, for sequences of different lengths in one
// batch and for keys that are not to be seen, or biases.
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

// Returns what to add to scores (.., length - first, length) of the queries from `first` on, so that none of them sees
// a later key: (length - first, length) with 0 and -1e30.
inline Tensor causal_mask(int64_t length, Device device, int64_t first = 0) {
  const auto make = [length, first](std::span<const Tensor>) {
    Tensor mask = Tensor::zeros({length - first, length});
    for (int64_t i = first; i < length; ++i)
      for (int64_t j = i + 1; j < length; ++j) mask.data<float>()[(i - first) * length + j] = -1e30f;
    return std::vector{mask};
  };
  return derived({}, make)[0].to(device);
}

// q (B, Tq, H, D), k and v (B, Tk, H, D) -> (B, Tq, H, D). The scores are in memory; softmax(q k * scale + bias) is
// computed by the functions of autograd/ one after another. The bias broadcasts to (B, H, Tq, Tk); a scale of 0 means
// 1 / sqrt(D).
inline Var masked_attention(const Var& q, const Var& k, const Var& v, const Var& bias, double scale = 0.0) {
  const Var products = matmul(permute(q, {0, 2, 1, 3}), permute(k, {0, 2, 3, 1}));
  if (scale == 0.0) scale = 1 / std::sqrt(static_cast<double>(q.dim(3)));
  const Var scores = scale == 1.0 ? products : products * scale;
  return permute(matmul(softmax(scores + bias), permute(v, {0, 2, 1, 3})), {0, 2, 1, 3});
}

}  // namespace elinvar
