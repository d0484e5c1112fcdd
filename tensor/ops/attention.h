#pragma once
// Scaled dot-product attention, forward and backward, by blocks of queries whose scores stay in cache: no score matrix
// is ever written to memory (NUMERICS.md, rule 14). For one head, with s = scale * (q . k) and masked keys absent:
//   m = max(s), e = exp(s - m), l = sum(e), r = 1 / l, o = (sum of e v) * r          m and r are kept
//   p = e * r, D = sum(do * o), ds = (p * (do . v - D)) * scale
//   dq = sum over keys of ds k, dk = sum over queries of ds q, dv = sum over queries of p do
// With grouped queries, dk and dv of the heads that share a key head are added left to right. A query with a score that
// is NaN or +inf gives NaN, as in softmax.h.
//
// With precision bf16, q, k, v and do may be bfloat16, or are rounded to it; the weights e, p and ds are rounded too.
// Sums, m and r are float32; o and the gradients are bfloat16, and D is computed from the rounded o (fast_product.h).
#include "tensor/fields.h"
#include "tensor/precision.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

// (B, T, H, D) with D contiguous: element (b, t, h, d) at data[b * batch + t * time + h * head + d].
struct HeadsView {
  void* data = nullptr;
  int64_t batch = 0, time = 0, head = 0;
  template <class T>
  constexpr T* of(int64_t b, int64_t h) const {  // the first element
    return static_cast<T*>(data) + b * batch + h * head;
  }
};

struct AttentionShape {
  DType dtype;
  int64_t batch, heads, kv_heads, tq, tk, size;
  bool causal;   // query i sees keys 0 .. i + (tk - tq)
  double scale;  // rounded to the dtype

  // The number of keys that query i sees.
  constexpr int64_t visible(int64_t i) const {
    const int64_t n = i + 1 + tk - tq;
    return !causal || n > tk ? tk : n < 0 ? 0 : n;
  }
};

struct AttentionArgs {
  AttentionShape s;
  HeadsView q, k, v, o;
  Out m, r;  // (B, H, Tq)
};
void attention(CpuStream&, const AttentionArgs&);
template <class B>
void attention(GpuStream<B>&, const AttentionArgs&);

struct AttentionBackwardArgs {
  AttentionShape s;
  HeadsView q, k, v, o, d_o;
  In m, r;
  HeadsView dq, dk, dv;
};
void attention_backward(CpuStream&, const AttentionBackwardArgs&);
template <class B>
void attention_backward(GpuStream<B>&, const AttentionBackwardArgs&);

// Checks shapes (B, Tq, H, D) and (B, Tk, G, D); a scale of 0 means 1 / sqrt(D).
AttentionShape attention_shape(DType dtype, const Shape& q, const Shape& k, const Shape& v, bool causal, double scale);

// Returns the precision of attention where products have that precision: bf16 for heads of at most 128 elements, else
// portable.
Precision attention_precision(Precision of_products, int64_t head);

// q (B, Tq, H, D), k and v (B, Tk, G, D) -> o like q; a scale of 0 means 1 / sqrt(D).
struct AttentionResult {
  Tensor o, m, r;
  ELINVAR_FIELDS(o, m, r)
};
struct AttentionGradients {
  Tensor dq, dk, dv;
  ELINVAR_FIELDS(dq, dk, dv)
};
AttentionResult attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, double scale,
                          Precision precision = Precision::portable);
AttentionGradients attention_backward(const Tensor& d_o, const Tensor& q, const Tensor& k, const Tensor& v,
                                      const AttentionResult& result, bool causal, double scale,
                                      Precision precision = Precision::portable);

// Takes q, k and v in one tensor (B, T, 3, H, D), as one projection makes them. Returns o (B, T, H, D), or the gradient
// in the input's layout, without copies.
AttentionResult self_attention(const Tensor& qkv, bool causal, double scale, Precision precision = Precision::portable);
Tensor self_attention_backward(const Tensor& d_o, const Tensor& qkv, const AttentionResult& result, bool causal,
                               double scale, Precision precision = Precision::portable);

}  // namespace elinvar
