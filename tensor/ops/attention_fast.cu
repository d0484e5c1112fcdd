#include "tensor/cuda/kernel.h"

#include <cmath>
#include <optional>

#include "tensor/cuda/elements.h"
#include "tensor/cuda/shared_rows.h"
#include "tensor/fast_product.h"

// Attention on tensor cores, in the form of FlashAttention-2 (Dao 2023): a block keeps rows, queries or, for their
// gradients, keys, of which a warp has one or two bands of 16, and passes over tiles of the others in shared memory;
// scores stay in registers. Softmax has a running maximum. Nothing is added across blocks, so the gradient of keys and
// that of queries are two kernels, each of which computes the scores anew.
//
// Two bands a warp, since each matrix that is read from shared memory, which is about as busy as the tensor cores, is
// then a factor of two products. That takes up to 255 registers of 128 threads, so that two blocks are at work on a
// multiprocessor, one computing exponentials while the other multiplies. A tile has as many rows as registers allow
// for its scores. Two tiles are in shared memory, one that is multiplied and one that is on its way: one barrier a
// tile, and a tile's products are longer than its way. Two blocks need 192 KiB at most, which sm_90 has; sm_80 runs
// those of heads beyond 64 elements one at a time.
//
// Heads are padded with zeros to kSize, one of 32, 64 and 128.
namespace elinvar::HWY_NAMESPACE {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32, kBlocksAtOnce = 2;
constexpr int kBand = 16, kColumns = 8, kDepth = 16;  // of one product of a warp
constexpr unsigned kWholeWarp = 0xffffffffu;
constexpr double kLog2E = 1.44269504088896340736;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// How the kernels of heads of kSize elements cut their work. Rows that stay are kept in registers as factors where
// these suffice, else read again with each tile.
template <int kSize>
struct Forward {
  static constexpr int kBands = 2, kRows = kBands * kBand * kWarps, kTile = kSize <= 64 ? 64 : 48;
  static constexpr bool kKept = kSize <= 64;
};
template <int kSize>
struct QueryGradients {
  static constexpr int kBands = 2, kRows = kBands * kBand * kWarps, kTile = 32;
  static constexpr bool kKept = kSize <= 64;
};
template <int kSize>
struct KeyGradients {
  static constexpr int kBands = kSize <= 64 ? 2 : 1, kRows = kBands * kBand * kWarps, kTile = 32;
  static constexpr bool kKept = kSize <= 32;
};

// 2^x and log2(x), to 22 bits; what is below 2^-126 is zero.
__device__ float exp2_of(float x) {
#ifdef __CUDACC__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  const float y = std::exp2(x);
  return y < std::numeric_limits<float>::min() ? 0.0f : y;
#endif
}
__device__ float log2_of(float x) {
#ifdef __CUDACC__
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::log2(x);
#endif
}

// x, as if it came anew: what follows from it is computed in each turn of a loop rather than kept in registers, of
// which the loops have none to spare.
__device__ int anew(int x) {
#ifdef __CUDACC__
  asm volatile("" : "+r"(x));
#endif
  return x;
}

// The rows of one head in memory, in chunks that are aligned to 16 bytes.
class HeadRows {
 public:
  __device__ HeadRows(const HeadsView& heads, int64_t b, int64_t h, int64_t size)
      : data_(heads.of<bf16>(b, h)), step_(heads.time), size_(static_cast<int>(size)) {}

  // Rows first .. first + kRows - 1, zeros from `end` on, to shared memory, by all threads of the block.
  template <int kSize, int kRows>
  __device__ void copy(int first, int end, SharedRows<kSize> to) const {
    constexpr int kChunks = kSize / 8, kAtOnce = kThreads / kChunks;
    static_assert(kAtOnce % 8 == 0 && kRows % kAtOnce == 0, "a thread's chunks change places in the same way");
    const int thread = anew(static_cast<int>(threadIdx.x)), row = thread / kChunks, chunk = thread % kChunks;
    const bf16* from = data_ + (first + row) * step_ + chunk * 8;
    const int left = chunk * 8 < size_ ? end - first - row : 0;
    const uint32_t place = to.at + to.place(row, chunk);
#pragma unroll
    for (int i = 0; i < kRows; i += kAtOnce, from += kAtOnce * step_) copy_async(place + to.bytes(i), from, i < left);
  }

  using Chunk = Some<bf16, 8>;
  __device__ Chunk chunk(int row, int i) const {
    if (i * 8 < size_) return *reinterpret_cast<const Chunk*>(data_ + row * step_ + i * 8);
    return {};
  }

 private:
  const bf16* data_;
  int64_t step_;
  int size_;
};

__device__ int warp_of_block() { return static_cast<int>(threadIdx.x) / 32; }

// The rows of a warp as factors.
template <int kSize, int kBands, bool kKept>
class Factors {
 public:
  // Once they have arrived.
  __device__ explicit Factors(SharedRows<kSize> of_block)
      : rows_{of_block.at + of_block.bytes(warp_of_block() * kBands * kBand)} {
    if constexpr (kKept)
#pragma unroll
      for (int band = 0; band < kBands; ++band)
#pragma unroll
        for (int k = 0; k < kSize / kDepth; ++k) kept_[band][k] = rows_.rows(band * kBand, k);
  }
  __device__ FactorA at(int band, int k) const {
    if constexpr (kKept) return kept_[band][k];
    else return rows_.rows(band * kBand, k);
  }

 private:
  SharedRows<kSize> rows_;
  FactorA kept_[kKept ? kBands : 1][kKept ? kSize / kDepth : 1];
};

// sums += rows of the warp times kTile rows `b`.
template <int kTile, int kSize, int kBands, bool kKept>
__device__ void multiply_rows(const Factors<kSize, kBands, kKept>& a, SharedRows<kSize> b,
                              Sums (&sums)[kBands][kTile / kColumns]) {
#pragma unroll(kSize <= 64 ? kSize / kDepth : 4)  // all eight read so far ahead that registers do not suffice
  for (int k = 0; k < kSize / kDepth; ++k) {
    FactorA rows[kBands];
#pragma unroll
    for (int band = 0; band < kBands; ++band) rows[band] = a.at(band, k);
#pragma unroll
    for (int j = 0; j < kTile / kColumns; j += 2) {
      const TwoFactorsB columns = b.rows_as_columns(j * kColumns, k);
#pragma unroll
      for (int band = 0; band < kBands; ++band) {
        multiply_add(sums[band][j], rows[band], columns.first);
        multiply_add(sums[band][j + 1], rows[band], columns.second);
      }
    }
  }
}

// sums += weights, in registers, times kTile rows `b`.
template <int kTile, int kSize, int kBands>
__device__ void add_weighted(const Sums (&weights)[kBands][kTile / kColumns], SharedRows<kSize> b,
                             Sums (&sums)[kBands][kSize / kColumns]) {
#pragma unroll
  for (int k = 0; k < kTile / kDepth; ++k) {
    FactorA rows[kBands];
#pragma unroll
    for (int band = 0; band < kBands; ++band) rows[band] = as_factor(weights[band][2 * k], weights[band][2 * k + 1]);
#pragma unroll
    for (int d = 0; d < kSize / kColumns; d += 2) {
      const TwoFactorsB columns = b.columns(k * kDepth, d / 2);
#pragma unroll
      for (int band = 0; band < kBands; ++band) {
        multiply_add(sums[band][d], rows[band], columns.first);
        multiply_add(sums[band][d + 1], rows[band], columns.second);
      }
    }
  }
}

// Where a thread's elements lie: at[2 r + c] of sums [band][j] is row(band, r) of the warp, column(j, c) of the tile.
__device__ int row_of(int band, int r) { return band * kBand + lane_group() + 8 * r; }
__device__ int column_of(int j, int c) { return j * kColumns + 2 * lane_in_group() + c; }

// f(row, sum) for all of them.
template <int kBands, int kCount, class F>
__device__ void each_sum(Sums (&sums)[kBands][kCount], F f) {
#pragma unroll
  for (int band = 0; band < kBands; ++band)
#pragma unroll
    for (int j = 0; j < kCount; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) f(row_of(band, e / 2), column_of(j, e % 2), sums[band][j].at[e]);
}

// Over the four lanes that share a row; all get the same.
__device__ float row_max(float x) {
  for (const int other : {1, 2}) x = fmaxf(x, __shfl_xor_sync(kWholeWarp, x, other));
  return x;
}
__device__ float row_total(float x) {
  for (const int other : {1, 2}) x = x + __shfl_xor_sync(kWholeWarp, x, other);
  return x;
}

// Sums, each row times a factor, as rows of a head; those from `end` on, and elements beyond the head, are left out.
template <int kSize, int kBands, class Factor>
__device__ void store_rows(const Sums (&sums)[kBands][kSize / kColumns], const HeadsView& heads, int64_t b, int64_t h,
                           int first, int64_t end, int64_t size, Factor factor) {
#pragma unroll
  for (int band = 0; band < kBands; ++band)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int64_t row = first + row_of(band, r);
      if (row >= end) continue;
      bf16* to = heads.of<bf16>(b, h) + row * heads.time;
      const bool pairs = reinterpret_cast<uintptr_t>(to) % sizeof(uint32_t) == 0;
#pragma unroll
      for (int j = 0; j < kSize / kColumns; ++j) {
        const float* at = sums[band][j].at + 2 * r;
        const uint32_t both = rounded_pair(at[0] * factor(band, r), at[1] * factor(band, r));
        const int64_t left = column_of(j, 0), right = column_of(j, 1);
        if (pairs && right < size) *reinterpret_cast<uint32_t*>(to + left) = both;
        else {
          if (left < size) to[left].bits = static_cast<uint16_t>(both);
          if (right < size) to[right].bits = static_cast<uint16_t>(both >> 16);
        }
      }
    }
}

// Where a block works: so many rows of one head. The last rows, which see the most keys, come first.
struct Place {
  int first, h, b;
  __device__ Place(int64_t time, int64_t heads, int rows) {
    const int block = anew(static_cast<int>(blockIdx.x)), blocks = static_cast<int>((time + rows - 1) / rows),
              head = block / blocks, heads_of_sample = static_cast<int>(heads);
    first = (blocks - 1 - block % blocks) * rows;
    h = head % heads_of_sample;
    b = head / heads_of_sample;
  }
};

// A score of which no weight is left.
__device__ float hidden(float scale) { return std::copysign(kInfinity, -scale); }

// Query i sees keys 0 .. i + ahead that there are.
__device__ int ahead_of(const AttentionShape& s) { return static_cast<int>(s.causal ? s.tk - s.tq : s.tk); }

// How many keys each row of a warp sees at least, and at most; none if all its rows are beyond the last query.
struct Seen {
  int all, some;
  __device__ Seen(const AttentionShape& s, int first, int rows) {
    const int queries = static_cast<int>(s.tq), keys = static_cast<int>(s.tk), ahead = ahead_of(s);
    all = std::min(first + 1 + ahead, keys);
    some = first < queries ? std::min(std::min(first + rows, queries) + ahead, keys) : 0;
  }
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
    const int b = anew(at.b), h = anew(kv);
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
    const Seen seen(s, anew(first), kBands * kBand);
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
            for (float* x : {&w.at[2 * r], &w.at[2 * r + 1]}) total += * x = exp2_of(std::fma(*x, scale, -base));
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

// What the gradients need of a query: p = 2^(score - shift), ds = p (product of gradient and value - dot) * scale. The
// queries of a head are filled up to a whole tile of those that have no weight.
struct Statistics {
  float shift, dot;
};
constexpr int kQueriesAtOnce = 32;
int64_t filled(int64_t queries) { return (queries + kQueriesAtOnce - 1) / kQueriesAtOnce * kQueriesAtOnce; }

// A chunk of a row a lane.
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
    for (int i = 0; i < 8; ++i) dot = std::fma(static_cast<float>(d_o.v[i]), static_cast<float>(o.v[i]), dot);
  }
  for (int other = kLanes / 2; other > 0; other /= 2) dot += __shfl_xor_sync(kWholeWarp, dot, other);
  if (lane != 0) return;
  const int64_t place = (b * s.heads + h) * s.tq + t;
  statistics[at] = t < s.tq ? Statistics{a.m.as<float>()[place] - log2_of(a.r.as<float>()[place]), dot}
                            : Statistics{kInfinity, 0.0f};
}

// Scores and products of gradients and values become p, and ds but for the factor `scale`.
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
    const Seen seen(s, anew(first), kBands * kBand);
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
  static_assert(kTile == kQueriesAtOnce);
  const AttentionShape& s = a.s;
  const Place at(s.tk, s.kv_heads, Cut::kRows);
  const int first_of_warp = at.first + warp_of_block() * kBands * kBand;
  const int time = static_cast<int>(s.tq), ahead = ahead_of(s);

  // Tiles from the first query on that sees one of these keys, of each head of queries.
  const int shared = static_cast<int>(s.heads / s.kv_heads);
  const int begin = std::max(at.first - ahead, 0) / kTile, tiles_of_head = (time + kTile - 1) / kTile - begin;
  const int tiles = tiles_of_head * shared;
  const auto first_query = [&](int tile) { return (begin + tile % tiles_of_head) * kTile; };

  constexpr Rows kKeys{0}, kValues{Rows::bytes(Cut::kRows)};
  constexpr uint32_t kStatistics = Rows::bytes(2 * Cut::kRows + 4 * kTile),
                     kStatisticsBytes = kTile * sizeof(Statistics);
  const auto queries_of = [](int tile) { return Rows{Rows::bytes(2 * Cut::kRows + tile % 2 * 2 * kTile)}; };
  const auto gradients_of = [](int tile) { return Rows{Rows::bytes(2 * Cut::kRows + (tile % 2 * 2 + 1) * kTile)}; };
  const auto load = [&](int tile) {
    const int b = anew(at.b), h = anew(at.h) * shared + tile / tiles_of_head, from = first_query(tile);
    HeadRows(a.q, b, h, s.size).copy<kSize, kTile>(from, time, queries_of(tile));
    HeadRows(a.d_o, b, h, s.size).copy<kSize, kTile>(from, time, gradients_of(tile));
    const uint32_t chunk = threadIdx.x * 16;
    if (chunk < kStatisticsBytes)
      copy_async(kStatistics + static_cast<uint32_t>(tile % 2) * kStatisticsBytes + chunk,
                 statistics + (b * s.heads + h) * queries + from + chunk / sizeof(Statistics), true);
  };
  HeadRows(a.k, at.b, at.h, s.size).copy<kSize, Cut::kRows>(at.first, static_cast<int>(s.tk), kKeys);
  HeadRows(a.v, at.b, at.h, s.size).copy<kSize, Cut::kRows>(at.first, static_cast<int>(s.tk), kValues);
  load(0);
  await_copies();
  const Factors<kSize, kBands, Cut::kKept> k(kKeys), v(kValues);

  Sums dk[kBands][kSize / kColumns], dv[kBands][kSize / kColumns];
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) load(tile + 1);
    const int from = first_query(tile), first = anew(first_of_warp), last = first + kBands * kBand - 1;
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

// Elements (b, t, h, d), with `flip` put to them by exclusive or and heads filled with zeros to `filled` elements.
__global__ void fast_chunks(HeadsView from, int64_t n, int64_t time, int64_t heads, int64_t size, int64_t filled,
                            uint16_t flip, bf16* to) {
  for (int64_t i = thread_of_grid(); i < n; i += grid_stride()) {
    const int64_t d = i % filled, h = i / filled % heads, t = i / filled / heads % time, b = i / filled / heads / time;
    to[i].bits = d < size ? static_cast<uint16_t>(from.of<bf16>(b, h)[t * from.time + d].bits ^ flip) : uint16_t{0};
  }
}

// Heads as the kernels read them, which is in chunks: a copy if they do not lie so, or change their signs.
class Chunks {
 public:
  Chunks(Gpu& stream, const AttentionShape& s, const HeadsView& heads, int64_t time, int64_t count, bool turned = false)
      : view_(heads) {
    const auto whole = [](int64_t elements) { return elements % 8 == 0; };
    if (!turned && whole(s.size) && whole(heads.batch) && whole(heads.time) && whole(heads.head) &&
        start_at_16(heads.of<bf16>(0, 0)))
      return;
    const int64_t filled = (s.size + 7) / 8 * 8, n = s.batch * time * count * filled;
    copy_.emplace(stream, n);
    launch(stream, "fast_attention_chunks", {.blocks = blocks_for(n)}, fast_chunks, heads, n, time, count, s.size,
           filled, static_cast<uint16_t>(turned ? 0x8000 : 0), copy_->data());
    view_ = {copy_->data(), time * count * filled, count * filled, filled};
  }
  const HeadsView& view() const { return view_; }

 private:
  HeadsView view_;
  std::optional<DeviceScratch<bf16>> copy_;
};

// f with the size to which heads are padded, as a constant.
template <class F>
void with_padded(const AttentionShape& s, F f) {
  invariant(s.size <= kMostFastHead, "a head that fast attention does not take");
  invariant(std::max(s.tq, s.tk) < INT32_MAX / 2, "rows that fast attention does not count");
  if (s.size <= 32) f(std::integral_constant<int, 32>());
  else if (s.size <= 64) f(std::integral_constant<int, 64>());
  else f(std::integral_constant<int, 128>());
}

// A kernel whose blocks keep rows `kept` times and pass over tiles of two kinds.
template <class Cut, int kSize>
Grid grid_of(int64_t heads, int64_t time, int kept, size_t more = 0) {
  return {.blocks = heads * ((time + Cut::kRows - 1) / Cut::kRows),
          .threads = kThreads,
          .shared = SharedRows<kSize>::bytes(kept * Cut::kRows + 4 * Cut::kTile) + more};
}

// From scores to exponents of two; never zero, as scores may be infinite.
float base_two(const AttentionShape& s) {
  const auto scale = static_cast<float>(s.scale * kLog2E);
  return std::copysign(std::max(std::fabs(scale), std::numeric_limits<float>::min()), scale);
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void fast_attention(Gpu& stream, const AttentionArgs& a) {
  using namespace HWY_NAMESPACE;
  const AttentionShape& s = a.s;
  // The largest score is that of the largest product, as the scale is positive: else queries have their signs turned.
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

template <>
void fast_attention_backward(Gpu& stream, const AttentionBackwardArgs& a) {
  using namespace HWY_NAMESPACE;
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
           grid_of<KeyGradients<kSize>, kSize>(s.batch * s.kv_heads, s.tk, 2, 2 * kQueriesAtOnce * sizeof(Statistics)),
           fast_key_gradients<kSize>, in_chunks, statistics.data(), queries, base_two(s));
  });
}

}  // namespace elinvar
