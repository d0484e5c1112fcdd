#pragma once
// Attention with exact products (NUMERICS.md, rule E7), with the formulas of attention.h. q, k and v are rounded once
// for all products, by rows: a row is one head at one position.
#include "tensor/ops/attention.h"
#include "tensor/quantized.h"

namespace elinvar {

// Heads of a Quantized whose rows are (batch, time, head): element pairs of one are at q + row * width.
struct QuantizedHeads {
  const void* q = nullptr;                // pairs of channels
  const int32_t* exponents = nullptr;     // of rows
  int64_t batch = 0, time = 0, head = 0;  // distances in rows
  int64_t width = 0;                      // pairs in a row
};

inline constexpr int64_t kExactQueryBlock = 64;  // sums over queries are exact in blocks of this many

struct ExactAttentionArgs {
  AttentionShape s;
  QuantizedHeads q, k, v;
  HeadsView o;
  Out m, r;  // (B, H, Tq)
};
void exact_attention(CpuStream&, const ExactAttentionArgs&);
template <class B>
void exact_attention(GpuStream<B>&, const ExactAttentionArgs&);

struct ExactAttentionBackwardArgs {
  AttentionShape s;
  QuantizedHeads q, k, v, d_o;
  HeadsView o, d_o_values;
  In m, r;
  HeadsView dq, dk, dv;
};
void exact_attention_backward(CpuStream&, const ExactAttentionBackwardArgs&);
template <class B>
void exact_attention_backward(GpuStream<B>&, const ExactAttentionBackwardArgs&);

// Rounds x (.., D), a head at each position, for attention.
Quantized quantize_heads(const Tensor& x);

// q (B, Tq, H, D), k and v (B, Tk, G, D) as quantize_heads() returns them, and their shapes -> o like q, float32. A
// scale of 0 means 1 / sqrt(D).
AttentionResult exact_attention(const Quantized& q, const Quantized& k, const Quantized& v, const Shape& q_shape,
                                const Shape& k_shape, bool causal, double scale);
AttentionGradients exact_attention_backward(const Tensor& d_o, const Quantized& q, const Quantized& k,
                                            const Quantized& v, const Shape& q_shape, const Shape& k_shape,
                                            const AttentionResult& result, bool causal, double scale);

// q, k and v in one tensor of this shape (B, T, 3, H, D).
AttentionResult exact_self_attention(const Quantized& qkv, const Shape& shape, bool causal, double scale);
Tensor exact_self_attention_backward(const Tensor& d_o, const Quantized& qkv, const Shape& shape,
                                     const AttentionResult& result, bool causal, double scale);

}  // namespace elinvar
