#pragma once
// Matrix products (NUMERICS.md, rule 8) and functions built from them.
#include "autograd/var.h"
#include "tensor/ops/rotary.h"

namespace elinvar {

// (.., m, k) x (.., k, n) -> (.., m, n); leading dimensions broadcast; either side may be a transposed view.
Var matmul(const Var& a, const Var& b);

// x (.., in) times weight (out, in) transposed, plus bias (out) if defined.
Var linear(const Var& x, const Var& weight, const Var& bias = {});

// Linear functions of one x, in order. Either all have a bias or none. With exact numerics their weights are rounded as
// one weight, so that x is rounded once (NUMERICS.md, rule E5).
struct LinearOperands {
  Var weight, bias;
};
std::vector<Var> linears(const Var& x, const std::vector<LinearOperands>& operands);

struct AttentionOptions {
  bool causal = true;  // query i sees keys 0 .. i + (Tk - Tq)
  double scale = 0.0;  // 0 means 1 / sqrt(head size)
};
// Scaled dot-product attention without score matrices in memory (NUMERICS.md, rule 14).
// q (B, Tq, H, D), k and v (B, Tk, G, D) -> (B, Tq, H, D); H is a multiple of G (grouped queries).
Var attention(const Var& q, const Var& k, const Var& v, const AttentionOptions& options = {});
// Takes q, k and v in one tensor, qkv (B, T, 3, H, D) -> (B, T, H, D), without copies of its parts.
Var self_attention(const Var& qkv, const AttentionOptions& options = {});

// Rotary position embedding (Su et al., RoFormer) of x (B, T, H, D), pairs (i, i + D/2) as in LLaMA, position t +
// first: y1 = x1 cos - x2 sin, y2 = x2 cos + x1 sin, angle (t + first) * base^(-2i/D), or less as `frequencies` says.
Var rotary(const Var& x, const RotaryFrequencies& frequencies = {}, int64_t first = 0);

}  // namespace elinvar
