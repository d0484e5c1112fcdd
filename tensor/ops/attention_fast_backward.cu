#include "tensor/cuda/kernel.h"

#include "tensor/cuda/fast_attention.h"

namespace elinvar::HWY_NAMESPACE::fast {
namespace {

// The tile sizes for heads of kSize elements. Rows that a block keeps stay in registers as factors if these suffice;
// otherwise they are read again for each tile.
template <int kSize>
struct QueryGradients {
  static constexpr int kBands = 2, kRows = kBands * kBand * kWarps, kTile = 32;
  static constexpr bool kKept = kSize <= 64;
};
template <int kSize>
struct KeyGradients {
  static constexpr int kBands = kSize <= 64 ? 2 : 1, kRows = kBands * kBand * kWarps;
  static constexpr int kTile = kSize <= 64 ? 32 : 64;
  static constexpr bool kKept = kSize <= 32;
};

// A score that gives the weight zero.
__device__ float hidden(float scale) { return std::copysign(kInfinity, -scale); }

// The statistics of a query: p = 2^(score - shift), ds = p (product of gradient and value - dot) * scale. The queries
// of a head are padded to a whole tile with queries without weight.
struct Statistics {
  float shift, dot;
};
constexpr int kQueriesAtOnce = 64;
int64_t filled(int64_t queries) { return (queries + kQueriesAtOnce - 1) / kQueriesAtOnce * kQueriesAtOnce; }

// Each lane takes a chunk of a row.
template <int kSize>
__global__ void fast_statistics(AttentionBackwardArgs a, Statistics* statistics, int64_t queries) {
  constexpr int kLanes = kSize / 8;
  const int64_t at = thread_of_grid() / kLanes;
  const AttentionShape& s = a.s;
  if (at >= s.batch * s.heads * queries) return;
  const int64_t h = at / queries % s.heads, b = at / queries / s.heads;
  const int lane = static_cast<int>(threadIdx.x) % kLanes, t = static_cast<int>(at % queries);
  float dot = 0.0f;
  if (t < s.tq) {
    const auto d_o = HeadRows(a.d_o, b, h, s.size).chunk(t, lane), o = HeadRows(a.o, b, h, s.size).chunk(t, lane);
    for (int i = 0; i < 8; ++i) dot = std::fma(d_o.at(i), o.at(i), dot);
  }
  for (int other = kLanes / 2; other > 0; other /= 2) dot += __shfl_xor_sync(kWholeWarp, dot, other);
  if (lane != 0) return;
  const int64_t place = (b * s.heads + h) * s.tq + t;
  statistics[at] = t < s.tq ? Statistics{a.m.as<float>()[place] - log2_of(a.r.as<float>()[place]), dot}
                            : Statistics{kInfinity, 0.0f};
}

// Turns a score and a product of gradient and value into p, and ds without the factor `scale`.
__device__ void gradient_of_score(float& score, float& product, float scale, const Statistics& of_query) {
  score = exp2_of(std::fma(score, scale, -of_query.shift));
  product = score * (product - of_query.dot);
}

template <int kSize>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce)
    fast_query_gradients(AttentionBackwardArgs a, const Statistics* statistics, int64_t queries, float scale) {
  using Cut = QueryGradients<kSize>;
  using Rows = SharedRows<kSize>;
  constexpr int kBands = Cut::kBands, kTile = Cut::kTile;
  const AttentionShape& s = a.s;
  const Place at(s.tq, s.heads, Cut::kRows);
  const int64_t kv = at.h / (s.heads / s.kv_heads);
  const HeadRows k(a.k, at.b, kv, s.size), v(a.v, at.b, kv, s.size);
  const int time = static_cast<int>(s.tk), first = at.first + warp_of_block() * kBands * kBand;
  const int tiles = (Seen(s, at.first, Cut::kRows).some + kTile - 1) / kTile;

  constexpr Rows kQueries{0}, kGradients{Rows::bytes(Cut::kRows)};
  const auto keys_of = [](int tile) { return Rows{Rows::bytes(2 * Cut::kRows + tile % 2 * 2 * kTile)}; };
  const auto values_of = [](int tile) { return Rows{Rows::bytes(2 * Cut::kRows + (tile % 2 * 2 + 1) * kTile)}; };
  const auto load = [&](int tile) {
    k.copy<kSize, kTile>(tile * kTile, time, keys_of(tile));
    v.copy<kSize, kTile>(tile * kTile, time, values_of(tile));
  };
  HeadRows(a.q, at.b, at.h, s.size).copy<kSize, Cut::kRows>(at.first, static_cast<int>(s.tq), kQueries);
  HeadRows(a.d_o, at.b, at.h, s.size).copy<kSize, Cut::kRows>(at.first, static_cast<int>(s.tq), kGradients);
  load(0);
  await_copies();
  const Factors<kSize, kBands, Cut::kKept> q(kQueries), d_o(kGradients);

  Sums dq[kBands][kSize / kColumns];
  Statistics of[kBands][2];
  for (int band = 0; band < kBands; ++band)
    for (int r = 0; r < 2; ++r) {
      const int row = first + row_of(band, r);
      of[band][r] = row < s.tq ? statistics[(at.b * s.heads + at.h) * queries + row] : Statistics{kInfinity, 0.0f};
    }
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) load(tile + 1);
    const Seen seen(s, opaque(first), kBands * kBand);
    if (tile * kTile < seen.some) {
      Sums p[kBands][kTile / kColumns], ds[kBands][kTile / kColumns];
      multiply_rows<kTile>(q, keys_of(tile), p);
      multiply_rows<kTile>(d_o, values_of(tile), ds);
      if ((tile + 1) * kTile > seen.all)
        each_sum(p, [&](int row, int column, float& x) {
          if (tile * kTile + column > std::min(first + row + ahead_of(s), time - 1)) x = hidden(scale);
        });
#pragma unroll
      for (int band = 0; band < kBands; ++band)
#pragma unroll
        for (int j = 0; j < kTile / kColumns; ++j)
          for (int e = 0; e < 4; ++e) gradient_of_score(p[band][j].at[e], ds[band][j].at[e], scale, of[band][e / 2]);
      add_weighted<kTile>(ds, keys_of(tile), dq);
    }
    await_copies();
  }
  const Place to(s.tq, s.heads, Cut::kRows);
  const auto plain = static_cast<float>(s.scale);
  store_rows<kSize>(dq, a.dq, to.b, to.h, first, s.tq, s.size, [&](int, int) { return plain; });
}

template <int kSize>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce)
    fast_key_gradients(AttentionBackwardArgs a, const Statistics* statistics, int64_t queries, float scale) {
  using Cut = KeyGradients<kSize>;
  using Rows = SharedRows<kSize>;
  constexpr int kBands = Cut::kBands, kTile = Cut::kTile;
  static_assert(kQueriesAtOnce % kTile == 0);
  const AttentionShape& s = a.s;
  const Place at(s.tk, s.kv_heads, Cut::kRows, Order::first_rows_first);
  const int first_of_warp = at.first + warp_of_block() * kBands * kBand;
  const int time = static_cast<int>(s.tq), ahead = ahead_of(s);

  // Tiles from the first query that sees one of these keys on, for each query head that shares the key head.
  const int shared = static_cast<int>(s.heads / s.kv_heads), begin = std::max(at.first - ahead, 0) / kTile * kTile;
  const int tiles = (time - begin + kTile - 1) / kTile * shared;

  constexpr Rows kKeys{0}, kValues{Rows::bytes(Cut::kRows)};
  constexpr uint32_t kStatistics = Rows::bytes(2 * Cut::kRows + 4 * kTile),
                     kStatisticsBytes = kTile * sizeof(Statistics);
  const auto queries_of = [](int tile) { return Rows{Rows::bytes(2 * Cut::kRows + tile % 2 * 2 * kTile)}; };
  const auto gradients_of = [](int tile) { return Rows{Rows::bytes(2 * Cut::kRows + (tile % 2 * 2 + 1) * kTile)}; };
  const auto load = [&](int tile, int h, int from) {
    const int b = opaque(at.b);
    HeadRows(a.q, b, h, s.size).copy<kSize, kTile>(from, time, queries_of(tile));
    HeadRows(a.d_o, b, h, s.size).copy<kSize, kTile>(from, time, gradients_of(tile));
    const uint32_t chunk = threadIdx.x * 16;
    if (chunk < kStatisticsBytes)
      copy_async(kStatistics + static_cast<uint32_t>(tile % 2) * kStatisticsBytes + chunk,
                 statistics + (b * s.heads + h) * queries + from + chunk / sizeof(Statistics), true);
  };
  HeadRows(a.k, at.b, at.h, s.size).copy<kSize, Cut::kRows>(at.first, static_cast<int>(s.tk), kKeys);
  HeadRows(a.v, at.b, at.h, s.size).copy<kSize, Cut::kRows>(at.first, static_cast<int>(s.tk), kValues);
  int next_head = at.h * shared, next = begin;
  if (tiles > 0) load(0, next_head, next);
  await_copies();
  const Factors<kSize, kBands, Cut::kKept> k(kKeys), v(kValues);

  Sums dk[kBands][kSize / kColumns], dv[kBands][kSize / kColumns];
  for (int tile = 0; tile < tiles; ++tile) {
    const int from = next, first = opaque(first_of_warp), last = first + kBands * kBand - 1;
    next = from + kTile < time ? from + kTile : begin;
    if (next == begin) ++next_head;
    if (tile + 1 < tiles) load(tile + 1, next_head, next);
    if (first <= from + kTile - 1 + ahead && first < s.tk) {
      Sums p[kBands][kTile / kColumns], ds[kBands][kTile / kColumns];
      multiply_rows<kTile>(k, queries_of(tile), p);
      multiply_rows<kTile>(v, gradients_of(tile), ds);
      if (last > from + ahead)
        each_sum(p, [&](int row, int column, float& x) {
          if (first + row > from + column + ahead) x = hidden(scale);
        });
      const auto* of = reinterpret_cast<const Statistics*>(dynamic_shared<unsigned char>() + kStatistics +
                                                           static_cast<uint32_t>(tile % 2) * kStatisticsBytes);
#pragma unroll
      for (int j = 0; j < kTile / kColumns; ++j) {
        struct alignas(16) Two {
          Statistics of[2];
        };
        const Two two = *reinterpret_cast<const Two*>(of + column_of(j, 0));
#pragma unroll
        for (int band = 0; band < kBands; ++band)
          for (int e = 0; e < 4; ++e) gradient_of_score(p[band][j].at[e], ds[band][j].at[e], scale, two.of[e % 2]);
      }
      add_weighted<kTile>(p, gradients_of(tile), dv);
      add_weighted<kTile>(ds, queries_of(tile), dk);
    }
    await_copies();
  }
  const auto plain = static_cast<float>(s.scale);
  store_rows<kSize>(dk, a.dk, at.b, at.h, first_of_warp, s.tk, s.size, [&](int, int) { return plain; });
  store_rows<kSize>(dv, a.dv, at.b, at.h, first_of_warp, s.tk, s.size, [&](int, int) { return 1.0f; });
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE::fast

namespace elinvar {

template <>
void fast_attention_backward(Gpu& stream, const AttentionBackwardArgs& a) {
  using namespace HWY_NAMESPACE::fast;
  const AttentionShape& s = a.s;
  const Chunks q(stream, s, a.q, s.tq, s.heads), k(stream, s, a.k, s.tk, s.kv_heads),
      v(stream, s, a.v, s.tk, s.kv_heads), o(stream, s, a.o, s.tq, s.heads), d_o(stream, s, a.d_o, s.tq, s.heads);
  AttentionBackwardArgs in_chunks = a;
  in_chunks.q = q.view(), in_chunks.k = k.view(), in_chunks.v = v.view();
  in_chunks.o = o.view(), in_chunks.d_o = d_o.view();
  const int64_t heads = s.batch * s.heads, queries = filled(s.tq);
  const DeviceScratch<Statistics> statistics(stream, heads * queries);
  with_padded(s, [&](auto size) {
    constexpr int kSize = size();
    launch(stream, "fast_attention_statistics", {.blocks = (heads * queries * (kSize / 8) + 255) / 256},
           fast_statistics<kSize>, in_chunks, statistics.data(), queries);
    launch(stream, "fast_attention_query_gradients", grid_of<QueryGradients<kSize>, kSize>(heads, s.tq, 2),
           fast_query_gradients<kSize>, in_chunks, statistics.data(), queries, base_two(s));
    launch(stream, "fast_attention_key_gradients",
           grid_of<KeyGradients<kSize>, kSize>(s.batch * s.kv_heads, s.tk, 2,
                                               2 * KeyGradients<kSize>::kTile * sizeof(Statistics)),
           fast_key_gradients<kSize>, in_chunks, statistics.data(), queries, base_two(s));
  });
}

}  // namespace elinvar
