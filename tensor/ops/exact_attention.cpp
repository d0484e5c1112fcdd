#include "tensor/ops/exact_attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/exact_attention.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <vector>

#include "tensor/op_check.h"
#include "tensor/ops/attention_products-inl.h"
#include "tensor/ops/attention_rows-inl.h"
#include "tensor/quantize-inl.h"
#include "tensor/scratch.h"
#include "tensor/trace.h"

namespace elinvar {
#ifndef ELINVAR_TENSOR_OPS_EXACT_ATTENTION_ONCE_
#define ELINVAR_TENSOR_OPS_EXACT_ATTENTION_ONCE_
namespace {

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

// Packs rows [first, last) of a head as pairs of rows, from which products sum over rows.
void pack_pairs_of_rows(const Head& head, int64_t first, int64_t last, PackedOperand<Pair>& to, int64_t size) {
  std::vector<int32_t> pairs(static_cast<size_t>(to.k_count * size));
  for (int64_t k = 0; k < to.k_count; ++k) {
    const auto* x = reinterpret_cast<const int16_t*>(head.row(first + 2 * k));
    int32_t* const out = pairs.data() + k * size;
    if (first + 2 * k + 1 < last) {
      const auto* y = reinterpret_cast<const int16_t*>(head.row(first + 2 * k + 1));
      for (int64_t d = 0; d < size; ++d) out[d] = pair_of(x[d], y[d]);
    } else {
      for (int64_t d = 0; d < size; ++d) out[d] = pair_of(x[d], 0);
    }
  }
  to.pack(reinterpret_cast<const Pair*>(pairs.data()), size, 1);
}

// Rounds x[0, n) against `against` (rule E2) and returns the exponent of the row; n is rounded up to whole pairs.
int32_t quantize_row(const float* x, const int32_t* against, int32_t most, int64_t n, float* scaled, int16_t* q) {
  int32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    scaled[i] = x[i] * relative_scale(against[i], most);
    largest = std::max(largest, magnitude(scaled[i]));
  }
  const int32_t exponent = exponent_of(largest);
  const float times = integer_scale(exponent);
  for (int64_t i = 0; i < n; ++i) q[i] = static_cast<int16_t>(quantized(scaled[i] * times));
  if (n % 2 != 0) q[n] = 0;
  return exponent + most;
}

// Scratch of one thread for products that sum over keys, and over the queries of a block.
struct Weights {
  int64_t ld;  // pairs in a row of queries
  Scratch<Pair> rows;
  Scratch<float> scaled;
  std::vector<int32_t> row_exponents, most;  // most[i]: the largest exponent of the keys up to i

  Weights(int64_t keys, const std::vector<int32_t>& key_exponents)
      : ld(keys / 2 + 1), rows(kQueryBlock * ld), scaled(keys), row_exponents(kQueryBlock) {
    int32_t largest = INT32_MIN;
    for (const int32_t e : key_exponents) most.push_back(largest = std::max(largest, e));
  }

  // Rounds the rows of queries [q0, q1) of `x` against the exponents of the keys that they see.
  void quantize(const AttentionShape& s, int64_t q0, int64_t q1, const float* x, int64_t x_step,
                const std::vector<int32_t>& key_exponents) {
    for (int64_t q = q0; q < q1; ++q) {
      const int64_t n = s.visible(q), limit = s.visible(q1 - 1);
      auto* const row = reinterpret_cast<int16_t*>(rows.data() + (q - q0) * ld);
      row_exponents[static_cast<size_t>(q - q0)] =
          n == 0 ? kLeastExponent
                 : quantize_row(x + (q - q0) * x_step, key_exponents.data(), most[static_cast<size_t>(n - 1)], n,
                                scaled.data(), row);
      std::fill(row + n, row + limit + 1, int16_t{0});
    }
  }
};

void exact_forward_head(const ExactAttentionArgs& args, int64_t b, int64_t h, int64_t first, int64_t last) {
  const AttentionShape& s = args.s;
  const int64_t kv = h / (s.heads / s.kv_heads);
  const Head queries(args.q, b, h), keys_of(args.k, b, kv), values_of(args.v, b, kv);
  PackedOperand<Pair> keys(args.k.width, s.tk), values((s.tk + 1) / 2, s.size);
  keys.pack(keys_of.q, 1, keys_of.time * keys_of.width);
  pack_pairs_of_rows(values_of, 0, s.tk, values, s.size);
  const std::vector<int32_t> key_exponents = keys_of.exponents_of(0, s.tk),
                             value_exponents = values_of.exponents_of(0, s.tk), zeros(static_cast<size_t>(s.size), 0);
  const int64_t ld = keys.strips.padded_columns();
  Scratch<float> scores(kQueryBlock * ld);
  Weights weights(s.tk, value_exponents);
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
    weights.quantize(s, q0, q1, scores.data(), ld, value_exponents);
    multiply_queries<Keys::summed, Pair>(s, q0, q1, weights.rows.data(), weights.ld, values, o + q0 * args.o.time,
                                         args.o.time, {weights.row_exponents.data(), zeros.data()});
    for (int64_t q = q0; q < q1; ++q) scale_row(o + q * args.o.time, s.size, r[q]);
  }
}

// sum (key, d) += the exact sum over queries [q0, q1) of weights (q, key) * rows (q, d), for the keys that at least one
// of them sees. Weights are rounded by keys against the exponents of the rows.
class BlockSum {
 public:
  BlockSum(int64_t tk, int64_t size)
      : size_(size),
        rows_((kQueryBlock + 1) / 2, size),
        pairs_(kQueryBlock / 2 * tk),
        panel_((kQueryBlock / 2) * kMostTileRows),
        largest_(static_cast<size_t>(tk)),
        times_(static_cast<size_t>(tk)),
        exponents_(static_cast<size_t>(tk)),
        zeros_(static_cast<size_t>(size), 0) {}

  void add(const AttentionShape& s, const float* weights, int64_t ld, int64_t q0, int64_t q1, const Head& rows,
           float* sum) {
    const int64_t seen = s.visible(q1 - 1), pair_count = (q1 - q0 + 1) / 2;
    if (seen == 0) return;
    const std::vector<int32_t> against = rows.exponents_of(q0, q1);
    const int32_t most = *std::max_element(against.begin(), against.end());
    float scale[kQueryBlock + 1] = {};
    for (size_t i = 0; i < against.size(); ++i) scale[i] = relative_scale(against[i], most);
    quantize(weights, ld, q1 - q0, seen, scale, most);
    rows_.k_count = pair_count;
    pack_pairs_of_rows(rows, q0, q1, rows_, size_);
    const TileExtent extent = rows_.strips.extent;
    float tile[kMostTileRows][kMostTileColumns];
    for (int64_t key = 0; key < seen; key += extent.rows) {
      const int count = static_cast<int>(std::min<int64_t>(extent.rows, seen - key));
      pack_panel(pairs_.data() + key, seen, pair_count, count, extent.rows, panel_.data());
      const Run run{.length = pair_count};
      for (int64_t strip = 0; strip < rows_.strips.count; ++strip) {
        const int64_t d0 = rows_.strips.begin(strip), columns = rows_.strips.exist(strip);
        float* c[kMostTileRows];
        for (int r = 0; r < extent.rows; ++r) c[r] = tile[r];
        multiply_tile(Tile<Pair>{.runs = &run,
                                 .run_count = 1,
                                 .tile_rows = extent.rows,
                                 .rows = count,
                                 .cols = static_cast<int>(columns),
                                 .panel = panel_.data(),
                                 .b = rows_.strip(strip),
                                 .b_step = rows_.strips.width(strip),
                                 .c_rows = c,
                                 .row_exponents = exponents_.data() + key,
                                 .column_exponents = zeros_.data()});
        for (int r = 0; r < count; ++r)
          for (int64_t d = 0; d < columns; ++d) sum[(key + r) * size_ + d0 + d] += tile[r][d];
      }
    }
  }

 private:
  // Rounds columns [0, keys) of x, of so many queries, into pairs of queries (pairs, keys).
  void quantize(const float* x, int64_t ld, int64_t queries, int64_t keys, const float* scale, int32_t most) {
    std::fill_n(largest_.begin(), keys, 0);
    for (int64_t q = 0; q < queries; ++q)
      for (int64_t j = 0; j < keys; ++j)
        largest_[static_cast<size_t>(j)] =
            std::max(largest_[static_cast<size_t>(j)], magnitude(x[q * ld + j] * scale[q]));
    for (int64_t j = 0; j < keys; ++j) {
      const int32_t exponent = exponent_of(largest_[static_cast<size_t>(j)]);
      times_[static_cast<size_t>(j)] = integer_scale(exponent);
      exponents_[static_cast<size_t>(j)] = exponent + most;
    }
    const float* const times = times_.data();
    for (int64_t q = 0; q < queries; q += 2) {
      auto* const to = reinterpret_cast<int32_t*>(pairs_.data() + q / 2 * keys);
      const float *first = x + q * ld, *second = q + 1 < queries ? first + ld : first;
      const float first_scale = scale[q], second_scale = scale[q + 1];  // 0 beyond the last query
      for (int64_t j = 0; j < keys; ++j)
        to[j] = pair_of(quantized(first[j] * first_scale * times[j]), quantized(second[j] * second_scale * times[j]));
    }
  }

  int64_t size_;
  PackedOperand<Pair> rows_;
  Scratch<Pair> pairs_, panel_;
  std::vector<int32_t> largest_;
  std::vector<float> times_;
  std::vector<int32_t> exponents_, zeros_;
};

void exact_backward_group(const ExactAttentionBackwardArgs& args, int64_t b, int64_t kv) {
  const AttentionShape& s = args.s;
  const auto scale = static_cast<float>(s.scale);
  const Head keys_of(args.k, b, kv), values_of(args.v, b, kv);
  PackedOperand<Pair> keys_t(args.k.width, s.tk), values_t(args.v.width, s.tk), keys((s.tk + 1) / 2, s.size);
  keys_t.pack(keys_of.q, 1, keys_of.time * keys_of.width);
  values_t.pack(values_of.q, 1, values_of.time * values_of.width);
  pack_pairs_of_rows(keys_of, 0, s.tk, keys, s.size);
  const std::vector<int32_t> key_exponents = keys_of.exponents_of(0, s.tk),
                             value_exponents = values_of.exponents_of(0, s.tk), zeros(static_cast<size_t>(s.size), 0);
  const int64_t ld = keys_t.strips.padded_columns(), shared = s.heads / s.kv_heads;
  Scratch<float> p(kQueryBlock * ld), ds(kQueryBlock * ld), dk_sum(s.tk * s.size), dv_sum(s.tk * s.size);
  Weights weights(s.tk, key_exponents);
  BlockSum sum(s.tk, s.size);
  float *dk = args.dk.of<float>(b, kv), *dv = args.dv.of<float>(b, kv);

  for (int64_t h = kv * shared; h < (kv + 1) * shared; ++h) {
    const Head queries(args.q, b, h), gradients(args.d_o, b, h);
    const float *o = args.o.of<float>(b, h), *d_o = args.d_o_values.of<float>(b, h);
    const float* m = args.m.as<float>() + (b * s.heads + h) * s.tq;
    const float* r = args.r.as<float>() + (b * s.heads + h) * s.tq;
    std::fill_n(dk_sum.data(), s.tk * s.size, 0.0f);
    std::fill_n(dv_sum.data(), s.tk * s.size, 0.0f);
    for (int64_t q0 = 0; q0 < s.tq; q0 += kQueryBlock) {
      const int64_t q1 = std::min(s.tq, q0 + kQueryBlock), limit = s.visible(q1 - 1);
      const std::vector<int32_t> query_exponents = queries.exponents_of(q0, q1),
                                 gradient_exponents = gradients.exponents_of(q0, q1);
      multiply_queries<Keys::columns, Pair>(s, q0, q1, queries.row(q0), queries.time * queries.width, keys_t, p.data(),
                                            ld, {query_exponents.data(), key_exponents.data()});
      multiply_queries<Keys::columns, Pair>(s, q0, q1, gradients.row(q0), gradients.time * gradients.width, values_t,
                                            ds.data(), ld, {gradient_exponents.data(), value_exponents.data()});
      for (int64_t q = q0; q < q1; ++q) {
        float *p_row = p.data() + (q - q0) * ld, *ds_row = ds.data() + (q - q0) * ld;
        scores_to_probabilities(p_row, s.visible(q), limit, scale, m[q], r[q]);
        score_gradients(ds_row, p_row, s.visible(q), limit, d_o + q * args.d_o_values.time, o + q * args.o.time, s.size,
                        scale);
      }
      weights.quantize(s, q0, q1, ds.data(), ld, key_exponents);
      multiply_queries<Keys::summed, Pair>(s, q0, q1, weights.rows.data(), weights.ld, keys,
                                           args.dq.of<float>(b, h) + q0 * args.dq.time, args.dq.time,
                                           {weights.row_exponents.data(), zeros.data()});
      sum.add(s, ds.data(), ld, q0, q1, queries, dk_sum.data());
      sum.add(s, p.data(), ld, q0, q1, gradients, dv_sum.data());
    }
    const bool first = h == kv * shared;
    for (int64_t t = 0; t < s.tk; ++t) {
      float *dk_row = dk + t * args.dk.time, *dv_row = dv + t * args.dv.time;
      for (int64_t d = 0; d < s.size; ++d) {
        dk_row[d] = (first ? 0.0f : dk_row[d]) + dk_sum[t * s.size + d];
        dv_row[d] = (first ? 0.0f : dv_row[d]) + dv_sum[t * s.size + d];
      }
    }
  }
}

}  // namespace

void exact_attention_head(const ExactAttentionArgs& a, int64_t b, int64_t h, int64_t first, int64_t last) {
  exact_forward_head(a, b, h, first, last);
}
void exact_attention_group(const ExactAttentionBackwardArgs& a, int64_t b, int64_t kv) {
  exact_backward_group(a, b, kv);
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(exact_attention_head);
HWY_EXPORT(exact_attention_group);

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

void exact_attention_backward(CpuStream& stream, const ExactAttentionBackwardArgs& a) {
  stream.parallel_for(a.s.batch * a.s.kv_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      HWY_DYNAMIC_DISPATCH(exact_attention_group)(a, i / a.s.kv_heads, i % a.s.kv_heads);
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
          x.rows.data<int32_t>() + skipped,
          time * parts * heads,
          parts * heads,
          1,
          width};
}
HeadsView value_heads(Tensor& t, const Shape& shape, int64_t parts = 1, int64_t i = 0) {
  const int64_t row = shape[2] * shape[3];
  return {t.data<float>() + i * row, shape[1] * parts * row, parts * row, shape[3]};
}

AttentionResult forward(const AttentionShape& s, const QuantizedHeads& q, const QuantizedHeads& k,
                        const QuantizedHeads& v) {
  const Shape shape{s.batch, s.tq, s.heads, s.size}, rows{s.batch, s.heads, s.tq};
  AttentionResult result{Tensor::empty(shape, DType::f32), Tensor::empty(rows, DType::f32),
                         Tensor::empty(rows, DType::f32)};
  exact_attention(cpu_stream(), {s, q, k, v, value_heads(result.o, shape), out(result.m), out(result.r)});
  return result;
}

void backward(const AttentionShape& s, const Tensor& d_o_in, const AttentionResult& result, const QuantizedHeads& q,
              const QuantizedHeads& k, const QuantizedHeads& v, const HeadsView& dq, const HeadsView& dk,
              const HeadsView& dv) {
  const Shape shape{s.batch, s.tq, s.heads, s.size}, rows{s.batch, s.heads, s.tq};
  Tensor d_o = operand("exact_attention_backward", "the gradient", d_o_in, shape, result.o), o = result.o;
  const Quantized d_o_rounded = quantize_heads(d_o);
  exact_attention_backward(cpu_stream(), {.s = s,
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
                                          .dv = dv});
}

AttentionResult exact_attention_of(const Quantized& q, const Quantized& k, const Quantized& v, const Shape& q_shape,
                                   const Shape& k_shape, bool causal, double scale) {
  const AttentionShape s = attention_shape(DType::f32, q_shape, k_shape, k_shape, causal, scale);
  return forward(s, quantized_heads(q, q_shape), quantized_heads(k, k_shape), quantized_heads(v, k_shape));
}

AttentionGradients exact_attention_backward_of(const Tensor& d_o, const Quantized& q, const Quantized& k,
                                               const Quantized& v, const Shape& q_shape, const Shape& k_shape,
                                               const AttentionResult& result, bool causal, double scale) {
  const AttentionShape s = attention_shape(DType::f32, q_shape, k_shape, k_shape, causal, scale);
  AttentionGradients g{Tensor::empty(q_shape, DType::f32), Tensor::empty(k_shape, DType::f32),
                       Tensor::empty(k_shape, DType::f32)};
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
                 quantized_heads(qkv, shape, 3, 2));
}

Tensor exact_self_attention_backward_of(const Tensor& d_o, const Quantized& qkv, const Shape& qkv_shape,
                                        const AttentionResult& result, bool causal, double scale) {
  const Shape shape = heads_shape(qkv_shape);
  const AttentionShape s = attention_shape(DType::f32, shape, shape, shape, causal, scale);
  Tensor d_qkv = Tensor::empty(qkv_shape, DType::f32);
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
  check(x.device().kind == DeviceKind::cpu,
        "[exact_attention] attention has exact products on CPUs only so far; use --device cpu, or portable numerics");
  const int64_t size = x.dim(-1);
  return quantize_rows(x.reshape({-1, 1, size}), Tensor::zeros({size}, DType::i32));
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
