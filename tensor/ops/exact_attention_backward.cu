#include "tensor/cuda/kernel.h"

#include "tensor/cuda/attention_gradients.h"
#include "tensor/cuda/exact_attention.h"

// Scores are recomputed wherever they are needed; their formulas are in attention.h. A block of query gradients passes
// over the keys twice: for the largest gradient of a score of each query, by which they are rounded, and for their
// product with the keys. Other blocks handle columns of the gradients beyond kSide.
namespace elinvar::HWY_NAMESPACE::exact {
namespace {

using V = Vec<float>;

// Tensors that blocks read besides the arguments.
struct ExactScratch {
  const float* dots;
  const int32_t* largest;  // exponents of keys, largest_exponents()
  PairedHeads keys, queries, gradients;
};

// Facts about a query. They are in shared memory, because products take the registers.
struct GradientRow {
  int32_t of_q, of_d_o, most;  // exponents of the query, of the gradient of its output, and the largest of its keys
  int32_t of_scores;           // the exponent of the gradients of its scores
};

struct alignas(16) QueryShared {
  Factor weights;
  Paired keys;
  float p[kRows * ScoreSums::kColumns][kThreads];  // each thread has its own
  Others others[2];
  QueryStats stats[kSide];
  GradientRow rows[kSide];
  ExactHead k, v;
  int32_t halves[2][kSide];
};

template <int kWidth>
__global__ void __launch_bounds__(kThreads, kBlocks)
    exact_query_gradients(const __grid_constant__ ExactAttentionBackwardArgs a,
                          const __grid_constant__ ExactScratch scratch) {
  auto& shared = *dynamic_shared<QueryShared>();
  const AttentionShape& s = a.s;
  const int tq = static_cast<int>(s.tq), tk = static_cast<int>(s.tk), size = static_cast<int>(s.size);
  constexpr int kWeights = words_in(offsetof(QueryShared, weights)), kKeys = words_in(offsetof(QueryShared, keys)),
                kOthersAt = words_in(offsetof(QueryShared, others)), kKeptQ = kWordsOf<QueryShared>;
  const int kept_d_o = kKeptQ + steps_of(size) * kWordsOf<Factor>;
  const AttentionPlace at(s.batch, s.heads, tq, size, TilesFrom::last);
  const int64_t kv = at.h / (s.heads / s.kv_heads);
  const ExactHead q(a.q, at.b, at.h, tq), d_o(a.d_o, at.b, at.h, tq);
  const ExactHead &k = shared.k, &v = shared.v;
  if (threadIdx.x == 0) {
    shared.k = ExactHead(a.k, at.b, kv, tk);
    shared.v = ExactHead(a.v, at.b, kv, tk);
  }
  const V scale{static_cast<float>(s.scale)};
  const int keys = seen_by(s, at.first + kSide < tq ? at.first + kSide - 1 : tq - 1);
  const auto visible = [&](int r) {
    const int i = at.first + row_of(r);
    return i < tq ? seen_by(s, i) : 0;
  };
  if (const int t = static_cast<int>(threadIdx.x), i = at.first + t; t < kSide) {
    const int seen = i < tq ? seen_by(s, i) : 0;
    shared.rows[t] = {q.exponent(i), d_o.exponent(i),
                      seen > 0 ? scratch.largest[(at.b * s.kv_heads + kv) * s.tk + seen - 1] : 0, 0};
  }
  keep_rows<kWidth>(q, at.first, size, kKeptQ);
  keep_rows<kWidth>(d_o, at.first, size, kept_d_o);
  load_stats(a, scratch.dots, at.b, at.h, at.first, shared.stats);
  __syncthreads();

  // Computes the gradients of the scores of the keys from j0 on. f(r, c, gradient as it is rounded) takes them.
  const auto score_gradients = [&](int j0, auto f) {
    Numbers<ScoreSums> x;
    const auto p = [&](int r, int c) -> float& { return shared.p[r * ScoreSums::kColumns + c][threadIdx.x]; };
    score<kWidth>(
        kKeptQ, [&](int r) { return shared.rows[row_of(r)].of_q; }, k, j0, size, kOthersAt, x);
    each<ScoreSums>([&](int r, int c) { p(r, c) = probability(V{x[r][c]}, scale, shared.stats[row_of(r)]); });
    score<kWidth>(
        kept_d_o, [&](int r) { return shared.rows[row_of(r)].of_d_o; }, v, j0, size, kOthersAt, x);
    int32_t against[ScoreSums::kColumns];
#pragma unroll
    for (int c = 0; c < ScoreSums::kColumns; ++c) against[c] = k.exponent(j0 + ScoreSums::column(c));
    each<ScoreSums>([&](int r, int c) {
      const bool sees = j0 + ScoreSums::column(c) < visible(r);
      const V ds = V{score_gradient(p(r, c), V{x[r][c]}, scale, shared.stats[row_of(r)])} *
                   V{relative_scale(against[c], shared.rows[row_of(r)].most)};
      f(r, c, select(sees, ds, V{0.0f}).v);
    });
  };
  int32_t largest[kRows] = {};
  for (int j0 = 0; j0 < keys; j0 += kOthers)
    score_gradients(j0, [&](int r, int, float ds) { largest[r] = larger(largest[r], magnitude(ds)); });
  across_row(largest, shared.halves, larger);

  each_row([&](int r) { shared.rows[row_of(r)].of_scores = exponent_of(largest[r]); });
  ResultSums dq;
  for (int j0 = 0; j0 < keys; j0 += kOthers) {
    copy_pairs<kWidth>(scratch.keys.of(at.b, kv), tk, j0, at.column, size, kKeys);
    Numbers<ScoreSums> x;
    score_gradients(j0,
                    [&](int r, int c, float ds) { x[r][c] = ds * integer_scale(shared.rows[row_of(r)].of_scores); });
    store_factor(kWeights, [&](int r, int c) { return quantized(x[r][c]); });
    __syncthreads();
    add_product(dq, kWeights, kKeys);
    __syncthreads();
  }
  each_place(a.dq, at.b, at.h, at.first, tq, at.column, size, [&](int r, int c, float& to) {
    to = scaled(static_cast<float>(dq.sum(r, c)), shared.rows[row_of(r)].of_scores + shared.rows[row_of(r)].most);
  });
}

constexpr int kHalves = kSide / kOthers;  // tiles of scores in a block of queries

// The loop needs all registers, so the place and the heads are in memory, too.
struct alignas(16) KeyShared {
  Factor weights[kHalves];
  Paired rows[kHalves];
  Others others[2];
  float scores[kHalves][kRows * ScoreSums::kColumns][kThreads];  // p, then ds: each thread has its own
  QueryStats stats[kSide];
  ExactHead q, d_o;
  AttentionPlace at;
  int32_t of_k[kSide], of_v[kSide], exponents[kSide], halves[2][kSide];
};

// Computes dk and dv of a tile of keys, over the queries that see one of them. Rows are keys, and columns the queries
// of a block of rule E7.
template <int kWidth>
__global__ void __launch_bounds__(kThreads, kBlocks)
    exact_key_gradients(const __grid_constant__ ExactAttentionBackwardArgs a,
                        const __grid_constant__ ExactScratch scratch) {
  auto& shared = *dynamic_shared<KeyShared>();
  const AttentionShape& s = a.s;
  const int tq = static_cast<int>(s.tq), tk = static_cast<int>(s.tk), size = static_cast<int>(s.size);
  constexpr int kWeights = words_in(offsetof(KeyShared, weights)), kQueryRows = words_in(offsetof(KeyShared, rows)),
                kOthersAt = words_in(offsetof(KeyShared, others)), kKeptK = kWordsOf<KeyShared>;
  const int kept_v = kKeptK + steps_of(size) * kWordsOf<Factor>;
  const AttentionPlace& at = shared.at;
  if (threadIdx.x == 0) shared.at = AttentionPlace(s.batch, s.kv_heads, tk, size, TilesFrom::first);
  __syncthreads();
  const int heads = static_cast<int>(s.heads / s.kv_heads);  // that share the keys
  const ExactHead k(a.k, at.b, at.h, tk), v(a.v, at.b, at.h, tk);
  const V scale{static_cast<float>(s.scale)};
  const int unseen = s.causal ? at.first - (tk - tq) : 0;  // queries before this one see none
  const int first = unseen > 0 ? unseen / kSide * kSide : 0;
  if (const int t = static_cast<int>(threadIdx.x); t < kSide) {
    shared.of_k[t] = k.exponent(at.first + t);
    shared.of_v[t] = v.exponent(at.first + t);
  }
  keep_rows<kWidth>(k, at.first, size, kKeptK);
  keep_rows<kWidth>(v, at.first, size, kept_v);

  for (int head_of_group = 0; head_of_group < heads; ++head_of_group) {
    const int64_t h = at.h * heads + head_of_group;
    __syncthreads();
    if (threadIdx.x == 0) {
      shared.q = ExactHead(a.q, at.b, h, tq);
      shared.d_o = ExactHead(a.d_o, at.b, h, tq);
    }
    __syncthreads();
    const ExactHead &q = shared.q, &d_o = shared.d_o;
    Numbers<ResultSums> dk, dv;
    each<ResultSums>([&](int r, int c) { dk[r][c] = dv[r][c] = 0.0f; });
    for (int i0 = first; i0 < tq; i0 += kSide) {
      const auto sees = [&](int r, int i) { return i < tq && at.first + row_of(r) < seen_by(s, i); };
      const auto score_at = [&](int half, int r, int c) -> float& {
        return shared.scores[half][r * ScoreSums::kColumns + c][threadIdx.x];
      };
      // Rounds the scores of each key against the rows of the queries, and adds the product with these rows to `to`.
      const auto add = [&](const ExactHead& rows, const RowPairs& pairs, Numbers<ResultSums>& to) {
        const auto existing = [&](int i) { return i < rows.count ? rows.exponent(i) : INT32_MIN; };
        for (int half = 0; half < kHalves; ++half)
          copy_pairs<kWidth>(pairs, tq, i0 + half * kOthers, at.column, size, kQueryRows + half * kWordsOf<Paired>);
        const int32_t most = warp_largest(larger(existing(i0 + lane()), existing(i0 + lane() + 32)));
        const auto relative = [&](int half, int c) {
          return relative_scale(rows.exponent(i0 + half * kOthers + ScoreSums::column(c)), most);
        };
        int32_t largest[kRows] = {};
#pragma unroll 1
        for (int half = 0; half < kHalves; ++half)
          each<ScoreSums>([&](int r, int c) {
            largest[r] = larger(largest[r], magnitude(score_at(half, r, c) * relative(half, c)));
          });
        across_row(largest, shared.halves, larger);
#pragma unroll
        for (int r = 0; r < kRows; ++r) largest[r] = exponent_of(largest[r]);
        each_row([&](int r) { shared.exponents[row_of(r)] = largest[r] + most; });
#pragma unroll 1
        for (int half = 0; half < kHalves; ++half) {
          store_factor(kWeights + half * kWordsOf<Factor>, [&](int r, int c) {
            return quantized(score_at(half, r, c) * relative(half, c) * integer_scale(largest[r]));
          });
        }
        await_copies();
        ResultSums sums;
#pragma unroll 1
        for (int half = 0; half < kHalves; ++half)
          add_product(sums, kWeights + half * kWordsOf<Factor>, kQueryRows + half * kWordsOf<Paired>);
        const int seen = seen_by(s, i0 + kSide < tq ? i0 + kSide - 1 : tq - 1);
        each<ResultSums>([&](int r, int c) {
          const float sum = scaled(sums.short_sum(r, c), shared.exponents[row_of(r)]);
          if (at.first + row_of(r) < seen) to[r][c] = to[r][c] + sum;
        });
      };
      __syncthreads();  // the previous statistics are no longer read
      load_stats(a, scratch.dots, at.b, h, i0, shared.stats);
#pragma unroll 1
      for (int half = 0; half < kHalves; ++half) {
        const int j0 = i0 + half * kOthers;
        Numbers<ScoreSums> x;
        score<kWidth>(
            kKeptK, [&](int r) { return shared.of_k[row_of(r)]; }, q, j0, size, kOthersAt, x);
        each<ScoreSums>([&](int r, int c) {
          const int column = ScoreSums::column(c);
          const V p{probability(V{x[r][c]}, scale, shared.stats[half * kOthers + column])};
          score_at(half, r, c) = select(sees(r, j0 + column), p, V{0.0f}).v;
        });
      }
      add(d_o, scratch.gradients.of(at.b, h), dv);
#pragma unroll 1
      for (int half = 0; half < kHalves; ++half) {
        const int j0 = i0 + half * kOthers;
        Numbers<ScoreSums> x;
        score<kWidth>(
            kept_v, [&](int r) { return shared.of_v[row_of(r)]; }, d_o, j0, size, kOthersAt, x);
        each<ScoreSums>([&](int r, int c) {
          const int column = ScoreSums::column(c);
          float& at_query = score_at(half, r, c);
          const V ds{score_gradient(at_query, V{x[r][c]}, scale, shared.stats[half * kOthers + column])};
          at_query = select(sees(r, j0 + column), ds, V{0.0f}).v;
        });
      }
      add(q, scratch.queries.of(at.b, h), dk);
    }
    // The sums of heads that share keys are added from left to right.
    const auto add_to = [&](const HeadsView& all, const Numbers<ResultSums>& sums) {
      each_place(all, at.b, at.h, at.first, tk, at.column, size,
                 [&](int r, int c, float& to) { to = (head_of_group == 0 ? 0.0f : to) + sums[r][c]; });
    };
    add_to(a.dk, dk);
    add_to(a.dv, dv);
  }
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE::exact

namespace elinvar {

template <>
void exact_attention_backward(Gpu& stream, const ExactAttentionBackwardArgs& a) {
  using namespace HWY_NAMESPACE;
  const AttentionShape& s = a.s;
  check_keys(s);
  const int64_t queries = s.batch * s.heads * s.tq;
  const DeviceScratch<float> dots(stream, queries);
  launch(stream, "exact_attention_query_dots", {.blocks = warp_blocks(queries)}, query_dots, s, a.d_o_values, a.o,
         dots.data());
  const exact::LargestExponents largest(stream, a.k, s.batch, s.kv_heads, s.tk);
  const exact::HeadPairs keys(stream, a.k, s.batch, s.kv_heads, s.tk, s.size),
      query_pairs(stream, a.q, s.batch, s.heads, s.tq, s.size),
      gradients(stream, a.d_o, s.batch, s.heads, s.tq, s.size);
  const exact::ExactScratch scratch{dots.data(), largest.data(), keys.paired(), query_pairs.paired(),
                                    gradients.paired()};
  const bool fours = exact::heads_in_fours(s, {a.q, a.k, a.v, a.d_o});
  launch(stream, "exact_attention_query_gradients",
         exact::grid_of<exact::QueryShared>(s.batch * s.heads, s.tq, s.size, 2),
         fours ? exact::exact_query_gradients<4> : exact::exact_query_gradients<1>, a, scratch);
  launch(stream, "exact_attention_key_gradients",
         exact::grid_of<exact::KeyShared>(s.batch * s.kv_heads, s.tk, s.size, 2),
         fours ? exact::exact_key_gradients<4> : exact::exact_key_gradients<1>, a, scratch);
}

}  // namespace elinvar
