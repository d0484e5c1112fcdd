#pragma once
// Multi-head self-attention on projected queries, keys and values.
#include "autograd/linear.h"
#include "autograd/shape.h"

namespace elinvar {

// (B, T, heads * D) as (B, T, heads, D).
inline Var split_heads(const Var& x, int64_t heads) {
  return reshape(x, {x.dim(0), x.dim(1), heads, x.dim(2) / heads});
}

// qkv (B, T, 3 * C): queries, keys and values one after another, each of `heads` heads -> (B, T, C).
inline Var self_attention(const Var& qkv, int64_t heads, const AttentionOptions& options = {}) {
  const int64_t c = qkv.dim(2) / 3;
  const auto part = [&](int64_t i) { return split_heads(slice(qkv, 2, i * c, (i + 1) * c), heads); };
  return reshape(attention(part(0), part(1), part(2), options), {qkv.dim(0), qkv.dim(1), c});
}

}  // namespace elinvar
