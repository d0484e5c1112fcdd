#include "tensor/ops/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/attention.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <cmath>

#include "tensor/isa.h"
#include "tensor/fast_product.h"
#include "tensor/op_check.h"
#include "tensor/trace.h"
#include "tensor/ops/attention_products-inl.h"
#include "tensor/ops/attention_rows-inl.h"
#include "tensor/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

template <class T>
void forward_head(const AttentionArgs& args, int64_t b, int64_t h, int64_t first, int64_t last) {
  const AttentionShape& s = args.s;
  const int64_t kv = h / (s.heads / s.kv_heads);
  PackedOperand<T> keys(s.size, s.tk), values(s.tk, s.size);
  keys.pack(args.k.of<T>(b, kv), 1, args.k.time);
  values.pack(args.v.of<T>(b, kv), args.v.time, 1);
  const int64_t ld = keys.strips.padded_columns();
  Scratch<T> scores(kQueryBlock * ld);
  const T* q_rows = args.q.of<T>(b, h);
  T* o = args.o.of<T>(b, h);
  T* m = args.m.as<T>() + (b * s.heads + h) * s.tq;
  T* r = args.r.as<T>() + (b * s.heads + h) * s.tq;
  for (int64_t q0 = first; q0 < last; q0 += kQueryBlock) {
    const int64_t q1 = std::min(last, q0 + kQueryBlock);
    multiply_queries<Keys::columns, T>(s, q0, q1, q_rows + q0 * args.q.time, args.q.time, keys, scores.data(), ld);
    for (int64_t q = q0; q < q1; ++q)
      scores_to_weights(scores.data() + (q - q0) * ld, s.visible(q), s.visible(q1 - 1), static_cast<T>(s.scale), m[q],
                        r[q]);
    multiply_queries<Keys::summed, T>(s, q0, q1, scores.data(), ld, values, o + q0 * args.o.time, args.o.time);
    for (int64_t q = q0; q < q1; ++q) scale_row(o + q * args.o.time, s.size, r[q]);
  }
}

void attention_forward_head(const AttentionArgs& a, int64_t b, int64_t h, int64_t first, int64_t last) {
  visit_element(a.s.dtype, [&](auto zero) { forward_head<decltype(zero)>(a, b, h, first, last); });
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(attention_forward_head);

void attention(CpuStream& stream, const AttentionArgs& a) {
  const int64_t heads = a.s.batch * a.s.heads, blocks = (a.s.tq + kQueryBlock - 1) / kQueryBlock;
  // If there are few heads, threads also share the blocks of queries of a head.
  const int64_t parts = std::clamp<int64_t>((4 * stream.threads() + heads - 1) / std::max<int64_t>(heads, 1), 1,
                                            std::max<int64_t>(blocks, 1));
  stream.parallel_for(heads * parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t head = i / parts, part = i % parts;
      ELINVAR_KERNEL(attention_forward_head, a.s.dtype)
      (a, head / a.s.heads, head % a.s.heads, blocks * part / parts * kQueryBlock,
       std::min(a.s.tq, blocks * (part + 1) / parts * kQueryBlock));
    }
  });
}

namespace {

// Returns the heads of t (B, T, H, D). If the last dimension is not contiguous, replaces `t` by a copy first.
HeadsView heads_of(Tensor& t) {
  if (t.strides()[3] != 1) t = t.to_contiguous();
  return {t.raw(), t.strides()[0], t.strides()[1], t.strides()[2]};
}

// Returns an operand in the form in which it enters the products.
Tensor heads_factor(const Tensor& t, Precision precision) {
  check(precision == Precision::portable || attention_precision(precision, t.dim(-1)) == precision,
        "[attention] {} products of heads of {} elements are not computed; attention_precision() says how they are",
        name_of(precision), t.dim(-1));
  return factor("attention", t, precision);
}

AttentionShape shape_of(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, double scale) {
  check_same_dtype("attention", q, k);
  check_same_dtype("attention", q, v);
  return attention_shape(q.dtype(), q.shape(), k.shape(), v.shape(), causal, scale);
}

// Returns part i, of three, of qkv (B, T, 3, H, D).
Tensor part_of(const Tensor& qkv, int64_t i) { return qkv.select(2, i); }

void check_qkv(const Tensor& qkv) {
  check(qkv.ndim() == 5 && qkv.dim(2) == 3, "[self_attention] (B, T, 3, H, D) expected, shape is {}",
        to_string(qkv.shape()));
}

void backward_into(const Tensor& d_o_in, Tensor q, Tensor k, Tensor v, const AttentionResult& result, bool causal,
                   double scale, Precision precision, Tensor dq, Tensor dk, Tensor dv) {
  const AttentionShape s = shape_of(q, k, v, causal, scale);
  Tensor d_o = heads_factor(d_o_in, precision), o = result.o;
  for (const Tensor& t : {o, d_o}) check_same_shape("attention_backward", t, q);
  check_same_dtype("attention_backward", d_o, q);
  check_same_dtype("attention_backward", o, dq);
  const Shape rows{s.batch, s.heads, s.tq};
  const Tensor m = operand("attention_backward", "m", result.m, rows, o),
               r = operand("attention_backward", "r", result.r, rows, o);
  const AttentionBackwardArgs args{.s = s,
                                   .q = heads_of(q),
                                   .k = heads_of(k),
                                   .v = heads_of(v),
                                   .o = heads_of(o),
                                   .d_o = heads_of(d_o),
                                   .m = in(m),
                                   .r = in(r),
                                   .dq = heads_of(dq),
                                   .dk = heads_of(dk),
                                   .dv = heads_of(dv)};
  if (precision == Precision::portable) on(q.device(), [&](auto& stream) { attention_backward(stream, args); });
  else on_tensor_cores(q.device(), [&](auto& stream) { fast_attention_backward(stream, args); });
}

AttentionResult attention_of(const Tensor& q_in, const Tensor& k_in, const Tensor& v_in, bool causal, double scale,
                             Precision precision) {
  Tensor q = heads_factor(q_in, precision), k = heads_factor(k_in, precision), v = heads_factor(v_in, precision);
  const AttentionShape s = shape_of(q, k, v, causal, scale);
  const Shape rows{s.batch, s.heads, s.tq};
  AttentionResult result{Tensor::empty(q.shape(), q.dtype(), q.device()),
                         Tensor::empty(rows, computed_in(q.dtype()), q.device()),
                         Tensor::empty(rows, computed_in(q.dtype()), q.device())};
  const AttentionArgs args{.s = s,
                           .q = heads_of(q),
                           .k = heads_of(k),
                           .v = heads_of(v),
                           .o = heads_of(result.o),
                           .m = out(result.m),
                           .r = out(result.r)};
  if (precision == Precision::portable) on(q.device(), [&](auto& stream) { attention(stream, args); });
  else on_tensor_cores(q.device(), [&](auto& stream) { fast_attention(stream, args); });
  return result;
}

AttentionGradients attention_backward_of(const Tensor& d_o, const Tensor& q_in, const Tensor& k_in, const Tensor& v_in,
                                         const AttentionResult& result, bool causal, double scale,
                                         Precision precision) {
  const Tensor q = heads_factor(q_in, precision), k = heads_factor(k_in, precision), v = heads_factor(v_in, precision);
  AttentionGradients g{Tensor::empty(q.shape(), q.dtype(), q.device()), Tensor::empty(k.shape(), q.dtype(), k.device()),
                       Tensor::empty(v.shape(), q.dtype(), v.device())};
  backward_into(d_o, q, k, v, result, causal, scale, precision, g.dq, g.dk, g.dv);
  return g;
}

AttentionResult self_attention_of(const Tensor& qkv_in, bool causal, double scale, Precision precision) {
  check_qkv(qkv_in);
  const Tensor qkv = heads_factor(qkv_in, precision).to_contiguous();
  return attention_of(part_of(qkv, 0), part_of(qkv, 1), part_of(qkv, 2), causal, scale, precision);
}

Tensor self_attention_backward_of(const Tensor& d_o, const Tensor& qkv_in, const AttentionResult& result, bool causal,
                                  double scale, Precision precision) {
  check_qkv(qkv_in);
  const Tensor qkv = heads_factor(qkv_in, precision).to_contiguous();
  Tensor d_qkv = Tensor::empty(qkv.shape(), qkv.dtype(), qkv.device());
  backward_into(d_o, part_of(qkv, 0), part_of(qkv, 1), part_of(qkv, 2), result, causal, scale, precision,
                part_of(d_qkv, 0), part_of(d_qkv, 1), part_of(d_qkv, 2));
  return d_qkv;
}

// The work of a product of queries (B, Tq, H, D) and keys; with a causal mask, of the keys that each query sees.
double product_flop(const Shape& q, int64_t keys, bool causal) {
  const int64_t tq = q[1], pairs = causal ? tq * (keys - tq) + tq * (tq + 1) / 2 : tq * keys;
  return 2.0 * static_cast<double>(q[0] * q[2] * q[3]) * static_cast<double>(pairs);
}
double self_product_flop(const Shape& qkv, bool causal) {
  return product_flop({qkv[0], qkv[1], qkv[3], qkv[4]}, qkv[1], causal);
}

// Two products forward; five backward, which recomputes the scores.
const Op kAttention(
    "attention(q, k, v, causal, scale, precision)", attention_of,
    +[](const Tensor& q, const Tensor& k, const Tensor&, bool causal, double, Precision) {
      return 2.0 * product_flop(q.shape(), k.dim(1), causal);
    });
const Op kAttentionBackward(
    "attention_backward(d_o, q, k, v, result, causal, scale, precision)", attention_backward_of,
    +[](const Tensor&, const Tensor& q, const Tensor& k, const Tensor&, const AttentionResult&, bool causal, double,
        Precision) { return 5.0 * product_flop(q.shape(), k.dim(1), causal); });
const Op kSelfAttention(
    "self_attention(qkv, causal, scale, precision)", self_attention_of,
    +[](const Tensor& qkv, bool causal, double, Precision) { return 2.0 * self_product_flop(qkv.shape(), causal); });
const Op kSelfAttentionBackward(
    "self_attention_backward(d_o, qkv, result, causal, scale, precision) -> d_qkv", self_attention_backward_of,
    +[](const Tensor&, const Tensor& qkv, const AttentionResult&, bool causal, double, Precision) {
      return 5.0 * self_product_flop(qkv.shape(), causal);
    });

}  // namespace

AttentionShape attention_shape(DType dtype, const Shape& q, const Shape& k, const Shape& v, bool causal, double scale) {
  check(q.ndim() == 4 && k.ndim() == 4 && k == v && q[0] == k[0] && q[3] == k[3] && k[2] > 0 && q[2] % k[2] == 0,
        "[attention] q (B, Tq, H, D) with k and v (B, Tk, G, D), G dividing H, expected; shapes are {}, {} and {}",
        to_string(q), to_string(k), to_string(v));
  check(k[1] > 0, "[attention] at least one key expected, shape is {}", to_string(k));
  check(q[3] <= kChunk, "[attention] heads of at most {} elements are supported, got {}", kChunk, q[3]);
  check(!causal || k[1] >= q[1], "[attention] a causal mask needs at least as many keys as queries, got {} and {}",
        k[1], q[1]);
  return {.dtype = dtype,
          .batch = q[0],
          .heads = q[2],
          .kv_heads = k[2],
          .tq = q[1],
          .tk = k[1],
          .size = q[3],
          .causal = causal,
          .scale = scale != 0.0 ? scale : 1.0 / std::sqrt(static_cast<double>(q[3]))};
}

Precision attention_precision(Precision of_products, int64_t head) {
  return of_products == Precision::bf16 && head <= kMostFastHead ? Precision::bf16 : Precision::portable;
}

AttentionResult attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, double scale,
                          Precision precision) {
  return kAttention(q, k, v, causal, scale, precision);
}

AttentionGradients attention_backward(const Tensor& d_o, const Tensor& q, const Tensor& k, const Tensor& v,
                                      const AttentionResult& result, bool causal, double scale, Precision precision) {
  return kAttentionBackward(d_o, q, k, v, result, causal, scale, precision);
}

AttentionResult self_attention(const Tensor& qkv, bool causal, double scale, Precision precision) {
  return kSelfAttention(qkv, causal, scale, precision);
}

Tensor self_attention_backward(const Tensor& d_o, const Tensor& qkv, const AttentionResult& result, bool causal,
                               double scale, Precision precision) {
  return kSelfAttentionBackward(d_o, qkv, result, causal, scale, precision);
}

}  // namespace elinvar
#endif
