// The backward pass of exact attention on CPUs; its formulas are in attention.h.
#include "tensor/ops/exact_attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/exact_attention_backward.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <vector>

#include "tensor/ops/exact_attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {
namespace {

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
    quantize(s, q0, q1, weights, ld, scale, most);
    rows_.k_count = pair_count;
    pack_pairs_of_rows(rows, q0, q1, rows_);
    rows_.plan(seen);
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
                                 .column_exponents = zeros_.data(),
                                 .carries = rows_.carries(strip)});
        for (int r = 0; r < count; ++r)
          for (int64_t d = 0; d < columns; ++d) sum[(key + r) * size_ + d0 + d] += tile[r][d];
      }
    }
  }

 private:
  // Rounds rows [q0, q1) of x by columns, the keys that these queries see, into pairs of queries (pairs, keys).
  void quantize(const AttentionShape& s, int64_t q0, int64_t q1, const float* x, int64_t ld, const float* scale,
                int32_t most) {
    const int64_t keys = s.visible(q1 - 1);
    int32_t* const largest = largest_.data();
    std::fill_n(largest, keys, 0);
    for (int64_t q = 0; q < q1 - q0; ++q) {
      const int64_t seen = s.visible(q0 + q);  // x is 0 beyond these
      for (int64_t j = 0; j < seen; ++j) largest[j] = std::max(largest[j], magnitude(x[q * ld + j] * scale[q]));
    }
    for (int64_t j = 0; j < keys; ++j) {
      const int32_t exponent = exponent_of(largest[j]);
      times_[static_cast<size_t>(j)] = integer_scale(exponent);
      exponents_[static_cast<size_t>(j)] = exponent + most;
    }
    const float* const times = times_.data();
    for (int64_t q = 0; q < q1 - q0; q += 2) {
      auto* const to = reinterpret_cast<int32_t*>(pairs_.data() + q / 2 * keys);
      const bool both = q0 + q + 1 < q1;
      const int64_t seen = s.visible(q0 + q + (both ? 1 : 0));
      const float *first = x + q * ld, *second = both ? first + ld : first;
      const float first_scale = scale[q], second_scale = scale[q + 1];  // 0 beyond the last query
      for (int64_t j = 0; j < seen; ++j)
        to[j] = pair_of(quantized(first[j] * first_scale * times[j]), quantized(second[j] * second_scale * times[j]));
      std::fill(to + seen, to + keys, 0);
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
  pack_pairs_of_rows(keys_of, 0, s.tk, keys);
  for (PackedOperand<Pair>* packed : {&keys_t, &values_t, &keys}) packed->plan(s.tq);
  const std::vector<int32_t> key_exponents = column_exponents(keys_of, keys_t),
                             value_exponents = column_exponents(values_of, values_t),
                             zeros(static_cast<size_t>(s.size), 0);
  const int64_t ld = keys_t.strips.padded_columns(), shared = s.heads / s.kv_heads;
  Scratch<float> p(kQueryBlock * ld), ds(kQueryBlock * ld), dk_sum(s.tk * s.size), dv_sum(s.tk * s.size);
  Weights weights(s.tk, key_exponents.data());
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
      weights.quantize(s, q0, q1, ds.data(), ld);
      multiply_queries<Keys::summed, Pair>(s, q0, q1, weights.rows(), weights.ld(), keys,
                                           args.dq.of<float>(b, h) + q0 * args.dq.time, args.dq.time,
                                           {weights.row_exponents(), zeros.data()});
      sum.add(s, ds.data(), ld, q0, q1, queries, dk_sum.data());
      sum.add(s, p.data(), ld, q0, q1, gradients, dv_sum.data());
    }
    const bool first = h == kv * shared;
    for (int64_t t = 0; t < s.tk; ++t) {
      float *dk_row = dk + t * args.dk.time, *dv_row = dv + t * args.dv.time;
      prefetch_row(dk_row + kAhead * args.dk.time, s.size);
      prefetch_row(dv_row + kAhead * args.dv.time, s.size);
      for (int64_t d = 0; d < s.size; ++d) {
        dk_row[d] = (first ? 0.0f : dk_row[d]) + dk_sum[t * s.size + d];
        dv_row[d] = (first ? 0.0f : dv_row[d]) + dv_sum[t * s.size + d];
      }
    }
  }
}

}  // namespace

void exact_attention_group(const ExactAttentionBackwardArgs& a, int64_t b, int64_t kv) {
  exact_backward_group(a, b, kv);
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(exact_attention_group);

void exact_attention_backward(CpuStream& stream, const ExactAttentionBackwardArgs& a) {
  stream.parallel_for(a.s.batch * a.s.kv_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      HWY_DYNAMIC_DISPATCH(exact_attention_group)(a, i / a.s.kv_heads, i % a.s.kv_heads);
  });
}

}  // namespace elinvar
#endif
