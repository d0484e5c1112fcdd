#include "tensor/cuda/kernel.h"

#include "tensor/cuda/exact_attention.h"
#include "tensor/math-inl.h"

// A block computes a tile of queries, and passes over the keys three times: for the largest score of each query, for
// the sum of its weights and the largest of them, by which they are rounded, and for the product with the values.
// Scores are recomputed each time. Other blocks handle columns of o beyond kSide.
namespace elinvar::HWY_NAMESPACE::exact {
namespace {

using V = Vec<float>;

// Tensors that blocks read besides the arguments.
struct Values {
  PairedHeads pairs;
  const int32_t* largest;  // exponents, largest_exponents()
};

// Facts about a query. They are in shared memory, because products take the registers.
struct QueryRow {
  int32_t exponent, most;  // of the query, and the largest of the values that it sees
  int32_t of_weights;      // the exponent of its weights
  float m;
};

struct alignas(16) ForwardShared {
  Factor weights;
  Paired values;
  Others keys[2];
  float lanes[kSide][kSide + 4];  // sums of weights by virtual lane; padded, so that there are no bank conflicts
  float segments[kMostSegments][kSide], r[kSide], m_halves[2][kSide];
  QueryRow rows[kSide];
  int32_t halves[2][kSide];
};

template <int kWidth>
__global__ void __launch_bounds__(kThreads, kBlocks)
    exact_forward_tiles(const __grid_constant__ ExactAttentionArgs a, const Values values) {
  auto& shared = *dynamic_shared<ForwardShared>();
  constexpr int kWeights = words_in(offsetof(ForwardShared, weights)),
                kValues = words_in(offsetof(ForwardShared, values)), kKeys = words_in(offsetof(ForwardShared, keys)),
                kKept = kWordsOf<ForwardShared>;
  const AttentionShape& s = a.s;
  const int tq = static_cast<int>(s.tq), tk = static_cast<int>(s.tk), size = static_cast<int>(s.size);
  const AttentionPlace at(s.batch, s.heads, tq, size, TilesFrom::last);
  const int64_t kv = at.h / (s.heads / s.kv_heads), row_of_stats = (at.b * s.heads + at.h) * s.tq;
  const int t = static_cast<int>(threadIdx.x);
  const ExactHead q(a.q, at.b, at.h, tq), k(a.k, at.b, kv, tk), v(a.v, at.b, kv, tk);
  const V scale{static_cast<float>(s.scale)};
  const int keys = seen_by(s, at.first + kSide < tq ? at.first + kSide - 1 : tq - 1);

  const auto visible = [&](int r) {
    const int i = at.first + row_of(r);
    return i < tq ? seen_by(s, i) : 0;
  };
  if (t < kSide) {
    const int i = at.first + t, seen = i < tq ? seen_by(s, i) : 0;
    shared.rows[t].exponent = q.exponent(i);
    shared.rows[t].most = seen > 0 ? values.largest[(at.b * s.kv_heads + kv) * s.tk + seen - 1] : 0;
  }
  keep_rows<kWidth>(q, at.first, size, kKept);
  for (int i = t; i < kSide * (kSide + 4); i += kThreads) shared.lanes[i / (kSide + 4)][i % (kSide + 4)] = 0.0f;
  for (int i = t; i < kMostSegments * kSide; i += kThreads) shared.segments[i / kSide][i % kSide] = 0.0f;

  Numbers<ScoreSums> x;
  const auto products = [&](int j0) {
    const auto exponent = [&](int r) { return shared.rows[row_of(r)].exponent; };
    score<kWidth>(kKept, exponent, k, j0, size, kKeys, x);
  };
  float m[kRows];
#pragma unroll
  for (float& of_row : m) of_row = -std::numeric_limits<float>::infinity();
  for (int j0 = 0; j0 < keys; j0 += kOthers) {
    products(j0);
    each<ScoreSums>([&](int r, int c) {
      const V product = V{x[r][c]} * scale;
      m[r] = select(j0 + ScoreSums::column(c) < visible(r) && m[r] < product.v, product, V{m[r]}).v;
    });
  }
  across_row(m, shared.m_halves, [](float one, float other) { return one < other ? other : one; });
  each_row([&](int r) { shared.rows[row_of(r)].m = m[r]; });

  // Computes the weights of the keys from j0 on. f(r, c, weight, weight as it is rounded) takes them.
  const auto weigh = [&](int j0, auto f) {
    products(j0);
    int32_t against[ScoreSums::kColumns];
#pragma unroll
    for (int c = 0; c < ScoreSums::kColumns; ++c) against[c] = v.exponent(j0 + ScoreSums::column(c));
    each<ScoreSums>([&](int r, int c) {
      const QueryRow& row = shared.rows[row_of(r)];
      const bool sees = j0 + ScoreSums::column(c) < visible(r);
      const V weight = select(sees, exp(V{x[r][c]} * scale - V{row.m}), V{0.0f});
      f(r, c, weight.v, select(sees, weight * V{relative_scale(against[c], row.most)}, V{0.0f}).v);
    });
  };

  int32_t largest[kRows] = {};
  for (int j0 = 0; j0 < keys; j0 += kOthers) {
    weigh(j0, [&](int r, int c, float weight, float relative) {
      float& lane = shared.lanes[j0 % kSide + ScoreSums::column(c)][row_of(r)];
      lane = lane + weight;
      largest[r] = larger(largest[r], magnitude(relative));
    });
    if ((j0 + kOthers) % static_cast<int>(kRowSegment) != 0 && j0 + kOthers < keys) continue;
    __syncthreads();
    if (t < kSide) {  // one thread for each row
      for (int half = kSide / 2; half > 0; half /= 2)
        for (int c = 0; c < half; ++c) shared.lanes[c][t] = shared.lanes[c][t] + shared.lanes[c + half][t];
      shared.segments[j0 / kRowSegment][t] = 0.0f + shared.lanes[0][t];
      for (int c = 0; c < kSide; ++c) shared.lanes[c][t] = 0.0f;
    }
    __syncthreads();
  }
  if (t < kSide) {  // the segments' sums are reduced as a row whose other lanes are zero
    for (int half = kMostSegments / 2; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) shared.segments[i][t] = shared.segments[i][t] + shared.segments[i + half][t];
    shared.r[t] = 1.0f / (0.0f + shared.segments[0][t]);
  }
  across_row(largest, shared.halves, larger);

  each_row([&](int r) { shared.rows[row_of(r)].of_weights = exponent_of(largest[r]); });
  ResultSums o;
  for (int j0 = 0; j0 < keys; j0 += kOthers) {
    copy_pairs<kWidth>(values.pairs.of(at.b, kv), tk, j0, at.column, size, kValues);
    weigh(j0, [&](int r, int c, float, float relative) {
      x[r][c] = relative * integer_scale(shared.rows[row_of(r)].of_weights);
    });
    store_factor(kWeights, [&](int r, int c) { return quantized(x[r][c]); });
    __syncthreads();
    add_product(o, kWeights, kValues);
    __syncthreads();
  }
  each_place(a.o, at.b, at.h, at.first, tq, at.column, size, [&](int r, int c, float& to) {
    to = scaled(static_cast<float>(o.sum(r, c)), shared.rows[row_of(r)].of_weights + shared.rows[row_of(r)].most) *
         shared.r[row_of(r)];
  });
  if (at.column != 0 || t >= kSide || at.first + t >= tq) return;
  a.m.as<float>()[row_of_stats + at.first + t] = shared.rows[t].m;
  a.r.as<float>()[row_of_stats + at.first + t] = shared.r[t];
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE::exact

namespace elinvar {

template <>
void exact_attention(Gpu& stream, const ExactAttentionArgs& a) {
  using namespace HWY_NAMESPACE;
  const AttentionShape& s = a.s;
  check_keys(s);
  const exact::HeadPairs pairs(stream, a.v, s.batch, s.kv_heads, s.tk, s.size);
  const exact::LargestExponents largest(stream, a.v, s.batch, s.kv_heads, s.tk);
  launch(stream, "exact_attention", exact::grid_of<exact::ForwardShared>(s.batch * s.heads, s.tq, s.size, 1),
         exact::heads_in_fours(s, {a.q, a.k}) ? exact::exact_forward_tiles<4> : exact::exact_forward_tiles<1>, a,
         exact::Values{pairs.paired(), largest.data()});
}

}  // namespace elinvar
