#pragma once
// Conversions between projections, whose last dimension holds all heads side by side, and attention over heads.
#include "autograd/linear.h"
#include "autograd/shape.h"

namespace elinvar {

// (B, T, heads * D) as (B, T, heads, D).
inline Var split_heads(const Var& x, int64_t heads) {
  return reshape(x, {x.dim(0), x.dim(1), heads, x.dim(2) / heads});
}

// qkv (B, T, 3 * C), that is queries, keys and values of `heads` heads each, one after another -> (B, T, C).
inline Var self_attention(const Var& qkv, int64_t heads, const AttentionOptions& options = {}) {
  const int64_t B = qkv.dim(0), T = qkv.dim(1), C = qkv.dim(2) / 3;
  return reshape(self_attention(reshape(qkv, {B, T, 3, heads, C / heads}), options), {B, T, C});
}

}  // namespace elinvar
