#include "tensor/ops/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/attention.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/fast_product.h"
#include "tensor/numerics.h"
#include "tensor/op_check.h"
#include "tensor/trace.h"
#include "tensor/ops/attention_rows-inl.h"
#include "tensor/pack.h"
#include "tensor/scratch.h"
#include "tensor/tile.h"

#ifndef ELINVAR_TENSOR_OPS_ATTENTION_ONCE_
#define ELINVAR_TENSOR_OPS_ATTENTION_ONCE_
namespace elinvar {

constexpr int64_t kQueryBlock = 64;
static_assert(kChunk % kQueryBlock == 0, "a chunk of queries is a whole number of blocks");

}  // namespace elinvar
#endif

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// B (k_count, columns), row k at rows + k * row_step, packed for tiles; or its transpose.
template <class T>
struct PackedOperand {
  int64_t k_count;
  Strips strips;
  Scratch<T> data;

  PackedOperand(int64_t k_count_, int64_t columns)
      : k_count(k_count_), strips(columns, tile_extent(T{}, columns)), data(k_count_ * strips.padded_columns()) {}

  void pack(const T* from, int64_t k_step, int64_t j_step) {
    for (int64_t s = 0; s < strips.count; ++s)
      pack_strip(from + strips.begin(s) * j_step, k_step, j_step, k_count, strips.exist(s), strips.width(s), strip(s));
  }
  T* strip(int64_t s) const { return data.data() + k_count * strips.begin(s); }
};

// c_rows[i] = sum over k in [0, k_end) of a_rows[i][k] * B[k], in chunks and groups (rule 8), of the first `columns`.
template <class T>
void multiply_rows(const T* const* a_rows, int rows, int64_t k_end, const PackedOperand<T>& b, int64_t columns,
                   T* const* c_rows) {
  T group[kMostTileRows][kMostTileColumns];
  T* group_rows[kMostTileRows];
  for (int64_t s = 0; s < b.strips.count && b.strips.begin(s) < columns; ++s) {
    for (int i = 0; i < b.strips.extent.rows; ++i) group_rows[i] = group[i] - b.strips.begin(s);
    for_each_chunk(0, k_end, k_end, [&](const Chunk& chunk) {
      const Run run{.a = chunk.begin, .b_row = chunk.begin, .length = chunk.end - chunk.begin};
      Tile<T> tile{.runs = &run,
                   .run_count = 1,
                   .tile_rows = b.strips.extent.rows,
                   .rows = rows,
                   .cols = static_cast<int>(std::min(b.strips.exist(s), columns - b.strips.begin(s))),
                   .a_rows = a_rows,
                   .b = b.strip(s),
                   .b_step = b.strips.width(s),
                   .c_offset = b.strips.begin(s)};
      add_chunk(tile, chunk, c_rows, group_rows);
      multiply_tile(tile);
    });
  }
}

// Rows of queries [q0, q1), the first at `a`, times an operand, into rows of which the first is at `c`. Either the sum
// runs over the keys that a query sees (weights times values), or they are the columns (queries times keys).
enum class Keys : uint8_t { summed, columns };
template <Keys kKeys, class T>
void multiply_queries(const AttentionShape& s, int64_t q0, int64_t q1, const T* a, int64_t a_step,
                      const PackedOperand<T>& b, T* c, int64_t c_step) {
  const TileExtent extent = b.strips.extent;
  for (int64_t i = q0; i < q1; i += extent.rows) {
    const int count = static_cast<int>(std::min<int64_t>(extent.rows, q1 - i));
    const T* a_rows[kMostTileRows];
    T* c_rows[kMostTileRows];
    for (int r = 0; r < extent.rows; ++r) {
      const int64_t row = i - q0 + std::min(r, count - 1);
      a_rows[r] = a + row * a_step;
      c_rows[r] = c + row * c_step;
    }
    const int64_t seen = s.visible(i + count - 1);
    if constexpr (kKeys == Keys::summed) multiply_rows(a_rows, count, seen, b, s.size, c_rows);
    else multiply_rows(a_rows, count, s.size, b, seen, c_rows);
  }
}

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

// The sums over queries of one head, dk and dv (tk, size): the chain of a chunk goes on from block to block, chunks add
// up to groups and groups to the total (rule 8).
template <class T>
class QuerySum {
 public:
  QuerySum(int64_t tk, int64_t size, int64_t queries)
      : count_(tk * size),
        size_(size),
        queries_(queries),
        chain_(count_),
        group_(queries > kChunk ? count_ : 1),
        total_(queries > kChunk * kGroup ? count_ : 1) {}

  T* chain() const { return chain_.data(); }
  void begin_block(int64_t q0) const {
    if (q0 % kChunk == 0) std::fill_n(chain_.data(), count_, T{0});
  }
  void end_block(int64_t q1) const {
    if (queries_ <= kChunk || (q1 % kChunk != 0 && q1 != queries_)) return;
    add(group_, chain_, (q1 - 1) % (kChunk * kGroup) < kChunk);
    if (queries_ <= kChunk * kGroup || (q1 % (kChunk * kGroup) != 0 && q1 != queries_)) return;
    add(total_, group_, q1 <= kChunk * kGroup);
  }
  const T* result() const {
    return (queries_ <= kChunk ? chain_ : queries_ <= kChunk * kGroup ? group_ : total_).data();
  }

 private:
  void add(const Scratch<T>& sum, const Scratch<T>& term, bool first) const {
    for (int64_t i = 0; i < count_; ++i) sum[i] = (first ? T{0} : sum[i]) + term[i];
  }
  int64_t count_, size_, queries_;
  Scratch<T> chain_, group_, total_;
};

// sum (key, d) += weights (q, key) * rows (q, d) over queries [q0, q1), for the keys that any of them sees.
template <class T>
void accumulate_over_queries(const AttentionShape& s, const T* weights, int64_t ld, int64_t q0, int64_t q1,
                             const T* rows, int64_t time, T* sum, T* panel) {
  const Strips strips(s.size, tile_extent(T{}, s.size));
  const TileExtent extent = strips.extent;
  const int64_t seen = s.visible(q1 - 1);  // weights of later keys are not defined
  for (int64_t key = 0; key < seen; key += extent.rows) {
    const int count = static_cast<int>(std::min<int64_t>(extent.rows, seen - key));
    const int64_t first =
        s.causal ? std::clamp<int64_t>(key - (s.tk - s.tq), q0, q1) : q0;  // earlier queries do not see the key
    pack_panel(weights + (first - q0) * ld + key, ld, q1 - first, count, extent.rows, panel);
    const Run run{.length = q1 - first};
    T* c[kMostTileRows];
    for (int r = 0; r < extent.rows; ++r) c[r] = sum + (key + std::min(r, count - 1)) * s.size;
    for (int64_t strip = 0; strip < strips.count; ++strip)
      multiply_tile(Tile<T>{.runs = &run,
                            .run_count = 1,
                            .tile_rows = extent.rows,
                            .rows = count,
                            .cols = static_cast<int>(strips.exist(strip)),
                            .panel = panel,
                            .b = rows + first * time + strips.begin(strip),
                            .b_step = time,
                            .c_rows = c,
                            .c_offset = strips.begin(strip),
                            .resume = true});
  }
}

template <class T>
void backward_group(const AttentionBackwardArgs& args, int64_t b, int64_t kv) {
  const AttentionShape& s = args.s;
  const T scale = static_cast<T>(s.scale);
  PackedOperand<T> keys_t(s.size, s.tk), values_t(s.size, s.tk), keys(s.tk, s.size);
  keys_t.pack(args.k.of<T>(b, kv), 1, args.k.time);
  values_t.pack(args.v.of<T>(b, kv), 1, args.v.time);
  keys.pack(args.k.of<T>(b, kv), args.k.time, 1);
  const int64_t ld = keys_t.strips.padded_columns(), shared = s.heads / s.kv_heads;
  Scratch<T> p(kQueryBlock * ld), ds(kQueryBlock * ld), panel(kQueryBlock * kMostTileRows);
  const QuerySum<T> dk_sum(s.tk, s.size, s.tq), dv_sum(s.tk, s.size, s.tq);
  T *dk = args.dk.of<T>(b, kv), *dv = args.dv.of<T>(b, kv);

  for (int64_t h = kv * shared; h < (kv + 1) * shared; ++h) {
    const T *q_rows = args.q.of<T>(b, h), *o = args.o.of<T>(b, h), *d_o = args.d_o.of<T>(b, h);
    const T* m = args.m.as<T>() + (b * s.heads + h) * s.tq;
    const T* r = args.r.as<T>() + (b * s.heads + h) * s.tq;
    for (int64_t q0 = 0; q0 < s.tq; q0 += kQueryBlock) {
      const int64_t q1 = std::min(s.tq, q0 + kQueryBlock), limit = s.visible(q1 - 1);
      multiply_queries<Keys::columns, T>(s, q0, q1, q_rows + q0 * args.q.time, args.q.time, keys_t, p.data(), ld);
      multiply_queries<Keys::columns, T>(s, q0, q1, d_o + q0 * args.d_o.time, args.d_o.time, values_t, ds.data(), ld);
      for (int64_t q = q0; q < q1; ++q) {
        T *p_row = p.data() + (q - q0) * ld, *ds_row = ds.data() + (q - q0) * ld;
        scores_to_probabilities(p_row, s.visible(q), limit, scale, m[q], r[q]);
        score_gradients(ds_row, p_row, s.visible(q), limit, d_o + q * args.d_o.time, o + q * args.o.time, s.size,
                        scale);
      }
      multiply_queries<Keys::summed, T>(s, q0, q1, ds.data(), ld, keys, args.dq.of<T>(b, h) + q0 * args.dq.time,
                                        args.dq.time);
      dk_sum.begin_block(q0);
      dv_sum.begin_block(q0);
      accumulate_over_queries(s, static_cast<const T*>(ds.data()), ld, q0, q1, q_rows, args.q.time, dk_sum.chain(),
                              panel.data());
      accumulate_over_queries(s, static_cast<const T*>(p.data()), ld, q0, q1, d_o, args.d_o.time, dv_sum.chain(),
                              panel.data());
      dk_sum.end_block(q1);
      dv_sum.end_block(q1);
    }
    const bool first = h == kv * shared;
    for (int64_t t = 0; t < s.tk; ++t) {
      T *dk_row = dk + t * args.dk.time, *dv_row = dv + t * args.dv.time;
      const T *dk_term = dk_sum.result() + t * s.size, *dv_term = dv_sum.result() + t * s.size;
      for (int64_t d = 0; d < s.size; ++d) {
        dk_row[d] = (first ? T{0} : dk_row[d]) + dk_term[d];
        dv_row[d] = (first ? T{0} : dv_row[d]) + dv_term[d];
      }
    }
  }
}

void attention_forward_head(const AttentionArgs& a, int64_t b, int64_t h, int64_t first, int64_t last) {
  visit_float(a.s.dtype, [&](auto zero) { forward_head<decltype(zero)>(a, b, h, first, last); });
}
void attention_backward_group(const AttentionBackwardArgs& a, int64_t b, int64_t kv) {
  visit_float(a.s.dtype, [&](auto zero) { backward_group<decltype(zero)>(a, b, kv); });
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(attention_forward_head);
HWY_EXPORT(attention_backward_group);

void attention(CpuStream& stream, const AttentionArgs& a) {
  const int64_t heads = a.s.batch * a.s.heads, blocks = (a.s.tq + kQueryBlock - 1) / kQueryBlock;
  // Few heads are cut by blocks of queries too.
  const int64_t parts = std::clamp<int64_t>((4 * stream.threads() + heads - 1) / std::max<int64_t>(heads, 1), 1,
                                            std::max<int64_t>(blocks, 1));
  stream.parallel_for(heads * parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t head = i / parts, part = i % parts;
      HWY_DYNAMIC_DISPATCH(attention_forward_head)
      (a, head / a.s.heads, head % a.s.heads, blocks * part / parts * kQueryBlock,
       std::min(a.s.tq, blocks * (part + 1) / parts * kQueryBlock));
    }
  });
}

void attention_backward(CpuStream& stream, const AttentionBackwardArgs& a) {
  stream.parallel_for(a.s.batch * a.s.kv_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      HWY_DYNAMIC_DISPATCH(attention_backward_group)(a, i / a.s.kv_heads, i % a.s.kv_heads);
  });
}

namespace {

// The heads of a view (B, T, H, D) whose last dimension must be contiguous; otherwise `t` is replaced by a copy.
HeadsView heads_of(Tensor& t) {
  if (t.strides()[3] != 1) t = t.to_contiguous();
  return {t.raw(), t.strides()[0], t.strides()[1], t.strides()[2]};
}

// Operands as they enter the products.
Tensor heads_factor(const Tensor& t, Precision precision) {
  check(precision == Precision::portable || attention_precision(precision, t.dim(-1)) == precision,
        "[attention] {} products of heads of {} elements are not computed; attention_precision() says how they are",
        name_of(precision), t.dim(-1));
  return factor("attention", t, precision);
}

AttentionShape shape_of(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, double scale) {
  check_same_dtype("attention", q, k);
  check_same_dtype("attention", q, v);
  check(q.ndim() == 4 && k.ndim() == 4 && k.shape() == v.shape() && q.dim(0) == k.dim(0) && q.dim(3) == k.dim(3) &&
            k.dim(2) > 0 && q.dim(2) % k.dim(2) == 0,
        "[attention] q (B, Tq, H, D) with k and v (B, Tk, G, D), G dividing H, expected; shapes are {}, {} and {}",
        to_string(q.shape()), to_string(k.shape()), to_string(v.shape()));
  check(k.dim(1) > 0, "[attention] at least one key expected, shape is {}", to_string(k.shape()));
  check(q.dim(3) <= kChunk, "[attention] heads of at most {} elements are supported, got {}", kChunk, q.dim(3));
  check(!causal || k.dim(1) >= q.dim(1),
        "[attention] a causal mask needs at least as many keys as queries, got {} and {}", k.dim(1), q.dim(1));
  return {.dtype = q.dtype(),
          .batch = q.dim(0),
          .heads = q.dim(2),
          .kv_heads = k.dim(2),
          .tq = q.dim(1),
          .tk = k.dim(1),
          .size = q.dim(3),
          .causal = causal,
          .scale = scale != 0.0 ? scale : 1.0 / std::sqrt(static_cast<double>(q.dim(3)))};
}

// The three parts of (B, T, 3, H, D).
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

// A product of queries (B, Tq, H, D) and keys; with a causal mask, of the keys that each query sees.
double product_flop(const Shape& q, int64_t keys, bool causal) {
  const int64_t tq = q[1], pairs = causal ? tq * (keys - tq) + tq * (tq + 1) / 2 : tq * keys;
  return 2.0 * static_cast<double>(q[0] * q[2] * q[3]) * static_cast<double>(pairs);
}
double self_product_flop(const Shape& qkv, bool causal) {
  return product_flop({qkv[0], qkv[1], qkv[3], qkv[4]}, qkv[1], causal);
}

// Two products forward, and five backward, where the scores are computed again.
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
