#include "tensor/cuda/kernel.h"

#include "tensor/cuda/fast_attention.h"

namespace elinvar::HWY_NAMESPACE::fast {
namespace {

// The tile sizes for heads of kSize elements. Queries stay in registers as factors if these suffice; otherwise they are
// read again for each tile.
template <int kSize>
struct Forward {
  static constexpr int kBands = 2, kRows = kBands * kBand * kWarps, kTile = kSize <= 64 ? 64 : 48;
  static constexpr bool kKept = kSize <= 64;
};

template <int kSize>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce) fast_queries(AttentionArgs a, float scale) {
  using Cut = Forward<kSize>;
  using Rows = SharedRows<kSize>;
  constexpr int kBands = Cut::kBands, kTile = Cut::kTile;
  const AttentionShape& s = a.s;
  const Place at(s.tq, s.heads, Cut::kRows);
  const int kv = at.h / static_cast<int>(s.heads / s.kv_heads);
  const int time = static_cast<int>(s.tk), first = at.first + warp_of_block() * kBands * kBand;
  const int tiles = (Seen(s, at.first, Cut::kRows).some + kTile - 1) / kTile;

  const auto keys_of = [](int tile) { return Rows{Rows::bytes(Cut::kRows + tile % 2 * 2 * kTile)}; };
  const auto values_of = [](int tile) { return Rows{Rows::bytes(Cut::kRows + (tile % 2 * 2 + 1) * kTile)}; };
  const auto load = [&](int tile) {
    const int b = opaque(at.b), h = opaque(kv);
    HeadRows(a.k, b, h, s.size).copy<kSize, kTile>(tile * kTile, time, keys_of(tile));
    HeadRows(a.v, b, h, s.size).copy<kSize, kTile>(tile * kTile, time, values_of(tile));
  };
  HeadRows(a.q, at.b, at.h, s.size).copy<kSize, Cut::kRows>(at.first, static_cast<int>(s.tq), Rows{0});
  load(0);
  await_copies();
  const Factors<kSize, kBands, Cut::kKept> q(Rows{0});

  Sums o[kBands][kSize / kColumns];
  float m[kBands][2], l[kBands][2];
  for (int band = 0; band < kBands; ++band)
    for (int r = 0; r < 2; ++r) m[band][r] = -kInfinity, l[band][r] = 0.0f;
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) load(tile + 1);
    const Seen seen(s, opaque(first), kBands * kBand);
    if (tile * kTile < seen.some) {
      Sums weights[kBands][kTile / kColumns];
      multiply_rows<kTile>(q, keys_of(tile), weights);
      if ((tile + 1) * kTile > seen.all)
        each_sum(weights, [&](int row, int column, float& x) {
          if (tile * kTile + column > std::min(first + row + ahead_of(s), time - 1)) x = -kInfinity;
        });
#pragma unroll
      for (int band = 0; band < kBands; ++band)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float most = m[band][r];
#pragma unroll
          for (Sums& w : weights[band]) most = fmaxf(most, fmaxf(w.at[2 * r], w.at[2 * r + 1]));
          most = row_max(most);
          const float base = most == -kInfinity ? 0.0f : most * scale;
          const float shrink = exp2_of(std::fma(m[band][r], scale, -base));
          m[band][r] = most;
          float total = l[band][r] * shrink;
#pragma unroll
          for (Sums& w : weights[band])
            for (float* x : {&w.at[2 * r], &w.at[2 * r + 1]}) {
              *x = exp2_of(std::fma(*x, scale, -base));
              total += *x;
            }
          l[band][r] = total;
#pragma unroll
          for (Sums& x : o[band]) x.at[2 * r] *= shrink, x.at[2 * r + 1] *= shrink;
        }
      add_weighted<kTile>(weights, values_of(tile), o);
    }
    await_copies();
  }
  const Place to(s.tq, s.heads, Cut::kRows);
  for (int band = 0; band < kBands; ++band)
    for (int r = 0; r < 2; ++r) {
      l[band][r] = 1.0f / row_total(l[band][r]);
      const int64_t row = first + row_of(band, r), place = (to.b * s.heads + to.h) * s.tq + row;
      if (row >= s.tq || lane_in_group() != 0) continue;
      a.m.as<float>()[place] = m[band][r] * scale;
      a.r.as<float>()[place] = l[band][r];
    }
  store_rows<kSize>(o, a.o, to.b, to.h, first, s.tq, s.size, [&](int band, int r) { return l[band][r]; });
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE::fast

namespace elinvar {

template <>
void fast_attention(Gpu& stream, const AttentionArgs& a) {
  using namespace HWY_NAMESPACE::fast;
  const AttentionShape& s = a.s;
  // The largest score belongs to the largest product if the scale is positive; otherwise queries change their sign.
  const Chunks q(stream, s, a.q, s.tq, s.heads, s.scale < 0), k(stream, s, a.k, s.tk, s.kv_heads),
      v(stream, s, a.v, s.tk, s.kv_heads);
  AttentionArgs in_chunks = a;
  in_chunks.q = q.view(), in_chunks.k = k.view(), in_chunks.v = v.view();
  with_padded(s, [&](auto size) {
    constexpr int kSize = size();
    launch(stream, "fast_attention", grid_of<Forward<kSize>, kSize>(s.batch * s.heads, s.tq, 1), fast_queries<kSize>,
           in_chunks, std::fabs(base_two(s)));
  });
}

}  // namespace elinvar
