// The backward pass of attention on CPUs; its formulas are in attention.h.
#include "tensor/ops/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tensor/ops/attention_backward.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>

#include "tensor/isa.h"
#include "tensor/op_check.h"
#include "tensor/ops/attention_products-inl.h"
#include "tensor/ops/attention_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace elinvar::HWY_NAMESPACE {

// The sum over the queries of one head, dk or dv (tk, size), in the order of rule 8: the chain of a chunk continues
// from block to block, chunks add up to groups, and groups to the total.
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

// sum (key, d) += weights (q, key) * rows (q, d) over queries [q0, q1), for the keys that at least one of them sees.
template <class T>
void accumulate_over_queries(const AttentionShape& s, const T* weights, int64_t ld, int64_t q0, int64_t q1,
                             const T* rows, int64_t time, T* sum, T* panel) {
  const Strips strips(s.size, tile_extent(T{}, s.size));
  const TileExtent extent = strips.extent;
  const int64_t seen = s.visible(q1 - 1);  // weights of later keys are undefined
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

void attention_backward_group(const AttentionBackwardArgs& a, int64_t b, int64_t kv) {
  visit_element(a.s.dtype, [&](auto zero) { backward_group<decltype(zero)>(a, b, kv); });
}

}  // namespace elinvar::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace elinvar {

HWY_EXPORT(attention_backward_group);

void attention_backward(CpuStream& stream, const AttentionBackwardArgs& a) {
  stream.parallel_for(a.s.batch * a.s.kv_heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      ELINVAR_KERNEL(attention_backward_group, a.s.dtype)(a, i / a.s.kv_heads, i % a.s.kv_heads);
  });
}

}  // namespace elinvar
#endif
