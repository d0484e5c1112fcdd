#include "tensor/ops/exact_attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/exact_attention.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <vector>

#include "tensor/op_check.h"
#include "tensor/ops/exact_attention-inl.h"
#include "tensor/trace.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {
namespace {

void exact_forward_head(const ExactAttentionArgs& args, int64_t b, int64_t h, int64_t first, int64_t last) {
  const AttentionShape& s = args.s;
  const int64_t kv = h / (s.heads / s.kv_heads);
  const Head queries(args.q, b, h), keys_of(args.k, b, kv), values_of(args.v, b, kv);
  PackedOperand<Pair> keys(args.k.width, s.tk), values((s.tk + 1) / 2, s.size);
  keys.pack(keys_of.q, 1, keys_of.time * keys_of.width);
  keys.plan(last - first);
  pack_pairs_of_rows(values_of, 0, s.tk, values);
  values.plan(last - first);
  const std::vector<int32_t> key_exponents = column_exponents(keys_of, keys),
                             value_exponents = values_of.exponents_of(0, s.tk), zeros(static_cast<size_t>(s.size), 0);
  const int64_t ld = keys.strips.padded_columns();
  Scratch<float> scores(kQueryBlock * ld);
  Weights weights(s.tk, value_exponents.data());
  float* o = args.o.of<float>(b, h);
  float* m = args.m.as<float>() + (b * s.heads + h) * s.tq;
  float* r = args.r.as<float>() + (b * s.heads + h) * s.tq;
  for (int64_t q0 = first; q0 < last; q0 += kQueryBlock) {
    const int64_t q1 = std::min(last, q0 + kQueryBlock);
    const std::vector<int32_t> query_exponents = queries.exponents_of(q0, q1);
    multiply_queries<Keys::columns, Pair>(s, q0, q1, queries.row(q0), queries.time * queries.width, keys, scores.data(),
                                          ld, {query_exponents.data(), key_exponents.data()});
    for (int64_t q = q0; q < q1; ++q)
      scores_to_weights(scores.data() + (q - q0) * ld, s.visible(q), s.visible(q1 - 1), static_cast<float>(s.scale),
                        m[q], r[q]);
    weights.quantize(s, q0, q1, scores.data(), ld);
    multiply_queries<Keys::summed, Pair>(s, q0, q1, weights.rows(), weights.ld(), values, o + q0 * args.o.time,
                                         args.o.time, {weights.row_exponents(), zeros.data()});
    for (int64_t q = q0; q < q1; ++q) scale_row(o + q * args.o.time, s.size, r[q]);
  }
}

}  // namespace

void exact_attention_head(const ExactAttentionArgs& a, int64_t b, int64_t h, int64_t first, int64_t last) {
  exact_forward_head(a, b, h, first, last);
}
}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(exact_attention_head);

void exact_attention(CpuStream& stream, const ExactAttentionArgs& a) {
  const int64_t heads = a.s.batch * a.s.heads, blocks = (a.s.tq + kQueryBlock - 1) / kQueryBlock;
  // If there are few heads, threads also share the blocks of queries of a head.
  const int64_t parts = std::clamp<int64_t>((4 * stream.threads() + heads - 1) / std::max<int64_t>(heads, 1), 1,
                                            std::max<int64_t>(blocks, 1));
  stream.parallel_for(heads * parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t head = i / parts, part = i % parts;
      HWY_DYNAMIC_DISPATCH(exact_attention_head)
      (a, head / a.s.heads, head % a.s.heads, blocks * part / parts * kQueryBlock,
       std::min(a.s.tq, blocks * (part + 1) / parts * kQueryBlock));
    }
  });
}

namespace {

// Views (B, T, H, D) of a Quantized, and of a float32 tensor; part i of `parts` in one tensor (B, T, parts, H, D).
QuantizedHeads quantized_heads(const Quantized& x, const Shape& shape, int64_t parts = 1, int64_t i = 0) {
  const int64_t time = shape[1], heads = shape[2];
  check(x.pairs == Pairs::channels && x.rows.numel() == shape[0] * time * parts * heads && x.q.dim(1) == 1 &&
            x.channels.numel() == shape[3],
        "[exact_attention] rows of heads of shape {} expected, got pairs {}", to_string(shape), to_string(x.q.shape()));
  const int64_t width = x.q.dim(2), skipped = i * heads;
  return {static_cast<const Pair*>(x.q.raw()) + skipped * width,
          static_cast<const int32_t*>(x.rows.raw()) + skipped,
          time * parts * heads,
          parts * heads,
          1,
          width};
}
HeadsView value_heads(Tensor& t, const Shape& shape, int64_t parts = 1, int64_t i = 0) {
  const int64_t row = shape[2] * shape[3];
  return {static_cast<float*>(t.raw()) + i * row, shape[1] * parts * row, parts * row, shape[3]};
}

AttentionResult forward(const AttentionShape& s, const QuantizedHeads& q, const QuantizedHeads& k,
                        const QuantizedHeads& v, Device device) {
  const Shape shape{s.batch, s.tq, s.heads, s.size}, rows{s.batch, s.heads, s.tq};
  AttentionResult result{Tensor::empty(shape, DType::f32, device), Tensor::empty(rows, DType::f32, device),
                         Tensor::empty(rows, DType::f32, device)};
  const ExactAttentionArgs args{s, q, k, v, value_heads(result.o, shape), out(result.m), out(result.r)};
  on(device, [&](auto& stream) { exact_attention(stream, args); });
  return result;
}

void backward(const AttentionShape& s, const Tensor& d_o_in, const AttentionResult& result, const QuantizedHeads& q,
              const QuantizedHeads& k, const QuantizedHeads& v, const HeadsView& dq, const HeadsView& dk,
              const HeadsView& dv) {
  const Shape shape{s.batch, s.tq, s.heads, s.size}, rows{s.batch, s.heads, s.tq};
  Tensor d_o = operand("exact_attention_backward", "the gradient", d_o_in, shape, result.o), o = result.o;
  const Quantized d_o_rounded = quantize_heads(d_o);
  const ExactAttentionBackwardArgs args{.s = s,
                                        .q = q,
                                        .k = k,
                                        .v = v,
                                        .d_o = quantized_heads(d_o_rounded, shape),
                                        .o = value_heads(o, shape),
                                        .d_o_values = value_heads(d_o, shape),
                                        .m = in(result.m),
                                        .r = in(result.r),
                                        .dq = dq,
                                        .dk = dk,
                                        .dv = dv};
  on(o.device(), [&](auto& stream) { exact_attention_backward(stream, args); });
}

AttentionResult exact_attention_of(const Quantized& q, const Quantized& k, const Quantized& v, const Shape& q_shape,
                                   const Shape& k_shape, bool causal, double scale) {
  const AttentionShape s = attention_shape(DType::f32, q_shape, k_shape, k_shape, causal, scale);
  return forward(s, quantized_heads(q, q_shape), quantized_heads(k, k_shape), quantized_heads(v, k_shape),
                 q.q.device());
}

AttentionGradients exact_attention_backward_of(const Tensor& d_o, const Quantized& q, const Quantized& k,
                                               const Quantized& v, const Shape& q_shape, const Shape& k_shape,
                                               const AttentionResult& result, bool causal, double scale) {
  const AttentionShape s = attention_shape(DType::f32, q_shape, k_shape, k_shape, causal, scale);
  const Device device = d_o.device();
  AttentionGradients g{Tensor::empty(q_shape, DType::f32, device), Tensor::empty(k_shape, DType::f32, device),
                       Tensor::empty(k_shape, DType::f32, device)};
  backward(s, d_o, result, quantized_heads(q, q_shape), quantized_heads(k, k_shape), quantized_heads(v, k_shape),
           value_heads(g.dq, q_shape), value_heads(g.dk, k_shape), value_heads(g.dv, k_shape));
  return g;
}

Shape heads_shape(const Shape& qkv) {
  check(qkv.ndim() == 5 && qkv[2] == 3, "[self_attention] (B, T, 3, H, D) expected, shape is {}", to_string(qkv));
  return {qkv[0], qkv[1], qkv[3], qkv[4]};
}

AttentionResult exact_self_attention_of(const Quantized& qkv, const Shape& qkv_shape, bool causal, double scale) {
  const Shape shape = heads_shape(qkv_shape);
  const AttentionShape s = attention_shape(DType::f32, shape, shape, shape, causal, scale);
  return forward(s, quantized_heads(qkv, shape, 3, 0), quantized_heads(qkv, shape, 3, 1),
                 quantized_heads(qkv, shape, 3, 2), qkv.q.device());
}

Tensor exact_self_attention_backward_of(const Tensor& d_o, const Quantized& qkv, const Shape& qkv_shape,
                                        const AttentionResult& result, bool causal, double scale) {
  const Shape shape = heads_shape(qkv_shape);
  const AttentionShape s = attention_shape(DType::f32, shape, shape, shape, causal, scale);
  Tensor d_qkv = Tensor::empty(qkv_shape, DType::f32, d_o.device());
  backward(s, d_o, result, quantized_heads(qkv, shape, 3, 0), quantized_heads(qkv, shape, 3, 1),
           quantized_heads(qkv, shape, 3, 2), value_heads(d_qkv, shape, 3, 0), value_heads(d_qkv, shape, 3, 1),
           value_heads(d_qkv, shape, 3, 2));
  return d_qkv;
}

// The work of one product of queries (B, Tq, H, D) and keys; with a causal mask, of the keys that each query sees.
double product_flop(const Shape& q, int64_t keys, bool causal) {
  const int64_t tq = q[1], pairs = causal ? tq * (keys - tq) + tq * (tq + 1) / 2 : tq * keys;
  return 2.0 * static_cast<double>(q[0] * q[2] * q[3]) * static_cast<double>(pairs);
}

const Op kExactAttention(
    "exact_attention(q, k, v, q_shape, k_shape, causal, scale)", exact_attention_of,
    +[](const Quantized&, const Quantized&, const Quantized&, const Shape& q, const Shape& k, bool causal, double) {
      return 2.0 * product_flop(q, k[1], causal);
    });
const Op kExactAttentionBackward(
    "exact_attention_backward(d_o, q, k, v, q_shape, k_shape, result, causal, scale)", exact_attention_backward_of,
    +[](const Tensor&, const Quantized&, const Quantized&, const Quantized&, const Shape& q, const Shape& k,
        const AttentionResult&, bool causal, double) { return 5.0 * product_flop(q, k[1], causal); });
const Op kExactSelfAttention(
    "exact_self_attention(qkv, shape, causal, scale)", exact_self_attention_of,
    +[](const Quantized&, const Shape& shape, bool causal, double) {
      return 2.0 * product_flop(heads_shape(shape), shape[1], causal);
    });
const Op kExactSelfAttentionBackward(
    "exact_self_attention_backward(d_o, qkv, shape, result, causal, scale) -> d_qkv", exact_self_attention_backward_of,
    +[](const Tensor&, const Quantized&, const Shape& shape, const AttentionResult&, bool causal, double) {
      return 5.0 * product_flop(heads_shape(shape), shape[1], causal);
    });

}  // namespace

Quantized quantize_heads(const Tensor& x) {
  const int64_t size = x.dim(-1);
  return quantize_rows(x.reshape({-1, 1, size}), Tensor::zeros({size}, DType::i32, x.device()));
}

AttentionResult exact_attention(const Quantized& q, const Quantized& k, const Quantized& v, const Shape& q_shape,
                                const Shape& k_shape, bool causal, double scale) {
  return kExactAttention(q, k, v, q_shape, k_shape, causal, scale);
}

AttentionGradients exact_attention_backward(const Tensor& d_o, const Quantized& q, const Quantized& k,
                                            const Quantized& v, const Shape& q_shape, const Shape& k_shape,
                                            const AttentionResult& result, bool causal, double scale) {
  return kExactAttentionBackward(d_o, q, k, v, q_shape, k_shape, result, causal, scale);
}

AttentionResult exact_self_attention(const Quantized& qkv, const Shape& shape, bool causal, double scale) {
  return kExactSelfAttention(qkv, shape, causal, scale);
}

Tensor exact_self_attention_backward(const Tensor& d_o, const Quantized& qkv, const Shape& shape,
                                     const AttentionResult& result, bool causal, double scale) {
  return kExactSelfAttentionBackward(d_o, qkv, shape, result, causal, scale);
}

}  // namespace elinvar
#endif
