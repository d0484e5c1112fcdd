#include "tensor/cuda/kernel.h"

#include "tensor/cuda/attention_gradients.h"
#include "tensor/cuda/attention_product.h"

// Each block computes a tile of kRows queries by 64 keys. Scores are recomputed wherever they are needed and exist only
// in shared memory, one tile at a time, so that the length is unlimited. The forward pass goes over the keys twice: the
// largest score must be known before the first exponential (NUMERICS.md, rule 14). Other blocks handle columns of o and
// of the gradients beyond 64 and recompute the same scores.
//
// A number of a pair that the mask hides is computed like the others and then replaced by zero: behind a branch for
// each number, a thread would compute one exponential after the other instead of many at once.
namespace elinvar::HWY_NAMESPACE {
namespace {

using V = Vec<float>;

constexpr int kSide = kAttentionSide;
static_assert(kChunk % kSide == 0);

// Which of a thread's pairs of a tile count: key and query exist, and the mask does not hide them. There are no
// branches. Rows that do not exist may count: their results are not stored.
template <class Mine>
class RowsOfQueries {
 public:
  __device__ RowsOfQueries(const AttentionShape& s, int first_query, int first_key)
      : causal_(s.causal ? ~0 : 0), end_(static_cast<int>(s.tk) - first_key - Mine().j) {
    if (s.causal) end_ += first_query + Mine().i + 1 - static_cast<int>(s.tq);
  }
  __device__ bool see(int p, int c) const { return Mine::column_offset(c) < end_ + (Mine::row_offset(p) & causal_); }

 private:
  int causal_, end_;
};
template <class Mine>
class ColumnsOfQueries {
 public:
  __device__ ColumnsOfQueries(const AttentionShape& s, int first_query, int first_key)
      : queries_(static_cast<int>(s.tq) - first_query - Mine().j),
        end_(s.causal ? static_cast<int>(s.tk - s.tq) + first_query - first_key + Mine().j + 1 - Mine().i
                      : Mine::kRows) {}
  __device__ bool see(int p, int c) const {
    return Mine::row_offset(p) < (Mine::column_offset(c) < queries_ ? end_ + Mine::column_offset(c) : 0);
  }

 private:
  int queries_, end_;
};

// The sums of a row's weights by virtual lane (rule 11), which are the columns of a tile. Each thread keeps those of
// its pairs to itself.
template <class Mine>
struct RowLanes {
  static constexpr int kFours = 2 * Mine::kOwn;
  alignas(16) float of_thread[kFours][Mine::kThreads][4];  // four rows of a column

  __device__ float& lane(int p, int c) { return of_thread[2 * c + p / 4][threadIdx.x][p % 4]; }
  __device__ void clear() {
#pragma unroll
    for (int c = 0; c < Mine::kOwn; ++c)
#pragma unroll
      for (int p = 0; p < 8; ++p) lane(p, c) = 0.0f;
  }
  __device__ void add(int p, int c, float x) { lane(p, c) = (V{lane(p, c)} + V{x}).v; }
  // Returns the sum of row p to all threads that share it. Both lanes of a pair get its sum, which is one of two equal
  // numbers, so that lanes need not be told apart.
  __device__ float sum(int p) {
    V of[4];
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      of[c] = V{lane(p, c)};
      if constexpr (Mine::kOwn == 8) of[c] = of[c] + V{lane(p, c + 4)};
    }
#pragma unroll
    for (int bit = Mine::kLastBit; bit >= Mine::kFirstBit; bit /= 2)
#pragma unroll
      for (V& lane : of) lane = lane + V{__shfl_xor_sync(kWholeWarp, lane.v, bit)};
    return (V{0.0f} + ((of[0] + of[2]) + (of[1] + of[3]))).v;
  }
};

// Sums of the segments of rows. The thread with number p of those that share rows keeps the sums of row p.
template <class Mine>
class RowSegments {
 public:
  __device__ RowSegments() {
#ifdef __CUDACC__
    asm volatile("" : "+l"(at_));  // as in ChunkSumsOf
#endif
    for (int i = 0; i < kMostSegments; ++i) at_[i] = 0.0f;
  }
  RowSegments(const RowSegments&) = delete;
  RowSegments& operator=(const RowSegments&) = delete;

  __device__ void take(int segment, RowLanes<Mine>& lanes) {
#pragma unroll
    for (int p = 0; p < 8; ++p) {
      const float sum = lanes.sum(p);
      if (Mine::across() == p) at_[segment] = sum;
    }
  }
  // The segments' sums are reduced as a row whose other lanes are zero. row(p) is then that of row p.
  __device__ void reduce() {
    for (int half = kMostSegments / 2; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) at_[i] = at_[i] + at_[i + half];
  }
  __device__ float row(int p) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return 0.0f + __shfl_sync(kWholeWarp, at_[0], (lane & ~(2 * Mine::kAcross - 2)) | 2 * p);
  }

 private:
  float sums_[kMostSegments];
  float* at_ = sums_;
};

// The places of a block. Kernels find them again where they write.
template <class Mine>
__device__ AttentionPlace place_of_queries(const AttentionShape& s) {
  return AttentionPlace(s.batch, hidden(static_cast<int>(s.heads)), hidden(static_cast<int>(s.tq)),
                        hidden(static_cast<int>(s.size)), TilesFrom::last, Mine::kRows);
}
template <class Mine>
__device__ AttentionPlace place_of_keys(const AttentionShape& s) {
  return AttentionPlace(s.batch, hidden(static_cast<int>(s.kv_heads)), hidden(static_cast<int>(s.tk)),
                        hidden(static_cast<int>(s.size)), TilesFrom::first, Mine::kRows);
}

template <class Mine>
struct ForwardShared {
  TileOfSteps<kSide> right[2];
  RowLanes<Mine> lanes;
  float m[Mine::kRows];
  union {
    TileOfSteps<Mine::kRows> left[2];  // while scores are computed
    ScoreTile<Mine> weights;
  };
};

template <class Mine, int kBlocks, int kWidth>
__global__ void __launch_bounds__(Mine::kThreads, kBlocks) forward_tiles(const __grid_constant__ AttentionArgs a) {
  auto& shared = *dynamic_shared<ForwardShared<Mine>>();
  RowLanes<Mine>& lanes = shared.lanes;
  const AttentionShape& s = a.s;
  const int tq = static_cast<int>(s.tq), tk = static_cast<int>(s.tk), size = static_cast<int>(s.size);
  const AttentionPlace at = place_of_queries<Mine>(s);
  const int64_t kv = at.h / (s.heads / s.kv_heads);
  const Mine mine;
  const AttentionProducts<Mine, kWidth> block{shared.left, shared.right, size};
  const V scale{static_cast<float>(s.scale)};
  const int end = at.first + Mine::kRows, keys = static_cast<int>(s.visible(end < tq ? end - 1 : tq - 1));

  V m[8];
#pragma unroll
  for (int p = 0; p < 8; ++p) m[p] = V{-std::numeric_limits<float>::infinity()};
  ChainsOf<Mine::kOwn> x;
  for (int j0 = (keys - 1) / kSide * kSide; j0 >= 0; j0 -= kSide) {  // the first tile's scores remain in x
    block.scores(rows_of(a.q, at.b, at.h), at.first, tq, rows_of(a.k, at.b, kv), j0, tk, x);
    const RowsOfQueries<Mine> queries(s, at.first, j0);
#pragma unroll
    for (int p = 0; p < 8; ++p)
#pragma unroll
      for (int c = 0; c < Mine::kOwn; ++c) {
        const V score = x[p][c] * scale;
        m[p] = select(queries.see(p, c) && m[p] < score, score, m[p]);
      }
  }
#pragma unroll
  for (int p = 0; p < 8; ++p) {
#pragma unroll
    for (int bit = Mine::kLastBit; bit >= Mine::kFirstBit; bit /= 2) {
      const V of_other{__shfl_xor_sync(kWholeWarp, m[p].v, bit)};
      m[p] = select(m[p] < of_other, of_other, m[p]);
    }
    if (Mine::across() == 0) shared.m[mine.row(p)] = m[p].v;
  }
  __syncthreads();

  lanes.clear();
  RowSegments<Mine> segments;
  ChainsOf<Mine::kOwn> chain;
  clear(chain);
  SumsOfChunks<Mine::kOwn> o;
  for (int j0 = 0;;) {
    const RowsOfQueries<Mine> queries(s, at.first, j0);
    shared.weights.each(mine, [&](int p, int c, float& weight) {
      const V e = exp(x[p][c] * scale - V{shared.m[mine.row(p)]});
      weight = select(queries.see(p, c), e, V{0.0f}).v;
      lanes.add(p, c, weight);
    });
    block.add(shared.weights, columns_of(a.v, at.b, kv), j0, tk, at.column, chain);
    j0 += kSide;
    const bool last = j0 >= keys;
    o.close(chain, j0, last);
    if (j0 % static_cast<int>(kRowSegment) == 0 || last) {
      segments.take((j0 - 1) / kRowSegment, lanes);
      lanes.clear();
    }
    if (last) break;
    block.scores(rows_of(a.q, at.b, at.h), at.first, tq, rows_of(a.k, at.b, kv), j0, tk, x);
  }
  segments.reduce();
  V r[8];
#pragma unroll
  for (int p = 0; p < 8; ++p) r[p] = V{1.0f / segments.row(p)};
  const AttentionPlace to = place_of_queries<Mine>(s);
  if (to.column == 0 && Mine::across() == 0)
#pragma unroll
    for (int p = 0; p < 8; ++p)
      if (const int i = to.first + mine.row(p); i < tq) {
        const int64_t row = (to.b * s.heads + to.h) * s.tq + i;
        a.m.as<float>()[row] = shared.m[mine.row(p)];
        a.r.as<float>()[row] = r[p].v;
      }
  block.write(a.o, to, tq, o.total, [&](int p, V sum) { return sum * r[p]; });
}

template <class Mine, int kQueries>
struct BackwardShared {
  TileOfSteps<Mine::kRows> left[2];
  TileOfSteps<kSide> right[2];
  ScoreTile<Mine> pairs;
  QueryStats stats[kQueries];
};

// Computes dq of a tile of queries.
template <class Mine, int kBlocks, int kWidth>
__global__ void __launch_bounds__(Mine::kThreads, kBlocks)
    query_gradients(const __grid_constant__ AttentionBackwardArgs a, const float* dots) {
  // Pairs are p, then ds.
  auto& [left, right, pairs, stats] = *dynamic_shared<BackwardShared<Mine, Mine::kRows>>();
  const AttentionShape& s = a.s;
  const int tq = static_cast<int>(s.tq), tk = static_cast<int>(s.tk), size = static_cast<int>(s.size);
  const AttentionPlace at = place_of_queries<Mine>(s);
  const int64_t kv = at.h / (s.heads / s.kv_heads);
  const Mine mine;
  const AttentionProducts<Mine, kWidth> block{left, right, size};
  const V scale{static_cast<float>(s.scale)};
  load_stats(a, dots, at.b, at.h, at.first, stats);
  const int end = at.first + Mine::kRows, keys = static_cast<int>(s.visible(end < tq ? end - 1 : tq - 1));

  ChainsOf<Mine::kOwn> chain;
  clear(chain);
  SumsOfChunks<Mine::kOwn> dq;
  for (int j0 = 0; j0 < keys; j0 += kSide) {
    ChainsOf<Mine::kOwn> x;
    block.scores(rows_of(a.q, at.b, at.h), at.first, tq, rows_of(a.k, at.b, kv), j0, tk, x);
    pairs.each(mine, [&](int p, int c, float& pair) { pair = probability(x[p][c], scale, stats[mine.row(p)]); });
    block.scores(rows_of(a.d_o, at.b, at.h), at.first, tq, rows_of(a.v, at.b, kv), j0, tk, x);
    const RowsOfQueries<Mine> queries(s, at.first, j0);
    pairs.each(mine, [&](int p, int c, float& pair) {
      const V ds{score_gradient(pair, x[p][c], scale, stats[mine.row(p)])};
      pair = select(queries.see(p, c), ds, V{0.0f}).v;
    });
    block.add(pairs, columns_of(a.k, at.b, kv), j0, tk, at.column, chain);
    dq.close(chain, j0 + kSide, j0 + kSide >= keys);
  }
  block.write(a.dq, place_of_queries<Mine>(s), tq, dq.total, [](int, V sum) { return sum; });
}

// Computes dk and dv of a tile of keys, over the queries that see one of them.
template <class Mine, int kBlocks, int kWidth>
__global__ void __launch_bounds__(Mine::kThreads, kBlocks)
    key_gradients(const __grid_constant__ AttentionBackwardArgs a, const float* dots) {
  // Pairs have a row for each key and a column for each query: p, then ds.
  auto& [left, right, pairs, stats] = *dynamic_shared<BackwardShared<Mine, kSide>>();
  const AttentionShape& s = a.s;
  const int tq = static_cast<int>(s.tq), tk = static_cast<int>(s.tk), size = static_cast<int>(s.size);
  const AttentionPlace at = place_of_keys<Mine>(s);
  const Mine mine;
  const AttentionProducts<Mine, kWidth> block{left, right, size};
  const V scale{static_cast<float>(s.scale)};
  const auto shared = [&] { return hidden(static_cast<int>(s.heads)) / static_cast<int>(s.kv_heads); };

  ChunkSumsOf<Mine::kOwn> dk, dv;
  ChainsOf<Mine::kOwn> chain_of_v;
  clear(chain_of_v);
  ChunkSumsOf<Mine::kOwn> chain_of_k;  // put away, as scores need the registers
  SumsOfChunks<Mine::kOwn> of_k, of_v;
  const int b = static_cast<int>(at.b);
  int h = static_cast<int>(at.h) * shared();  // of queries; all its sums are zero before and after it
  do {
    const int unseen = s.causal ? hidden(at.first) - (tk - tq) : 0;  // queries before this one see none
    for (int i0 = unseen > 0 ? unseen / kSide * kSide : 0; i0 < tq; i0 += kSide) {
      __syncthreads();  // the previous statistics are no longer read
      load_stats(a, dots, b, h, i0, stats);
      ChainsOf<Mine::kOwn> x;
      const ColumnsOfQueries<Mine> queries(s, i0, at.first);
      block.scores(rows_of(a.k, b, h / shared()), at.first, tk, rows_of(a.q, b, h), i0, tq, x);
      pairs.each(mine, [&](int p, int c, float& pair) {
        pair = select(queries.see(p, c), V{probability(x[p][c], scale, stats[mine.col(c)])}, V{0.0f}).v;
      });
      block.add(pairs, columns_of(a.d_o, b, h), i0, tq, at.column, chain_of_v);
      block.scores(rows_of(a.v, b, h / shared()), at.first, tk, rows_of(a.d_o, b, h), i0, tq, x);
      pairs.each(mine, [&](int p, int c, float& pair) {
        pair = select(queries.see(p, c), V{score_gradient(pair, x[p][c], scale, stats[mine.col(c)])}, V{0.0f}).v;
      });
      const bool last = i0 + kSide >= tq;
      chain_of_k.get(x);
      block.add(pairs, columns_of(a.q, b, h), i0, tq, at.column, x);
      of_k.close(x, i0 + kSide, last);
      chain_of_k.put(x);
      of_v.close(chain_of_v, i0 + kSide, last);
    }
    dk.take(of_k.total);
    dv.take(of_v.total);
  } while (++h % shared() != 0);
  const AttentionPlace to = place_of_keys<Mine>(s);
  const auto as_it_is = [](int, V sum) { return sum; };
  block.write(a.dk, to, tk, dk, as_it_is);
  block.write(a.dv, to, tk, dv, as_it_is);
}

// Tiles, and blocks per multiprocessor.
using Forward = AttentionThread<64, 4>;
using Backward = AttentionThread<64, 4>;
constexpr int kForwardBlocks = 4, kBackwardBlocks = 4;

// Whether any four neighbours of a head are in 16 aligned bytes.
bool in_fours(const AttentionShape& s, std::initializer_list<HeadsView> all) {
  return s.size % 4 == 0 && std::all_of(all.begin(), all.end(), [](const HeadsView& x) {
           return x.batch % 4 == 0 && x.time % 4 == 0 && x.head % 4 == 0 &&
                  reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
         });
}

}  // namespace
}  // namespace elinvar::HWY_NAMESPACE

namespace elinvar {

template <>
void attention(Gpu& stream, const AttentionArgs& a) {
  using namespace HWY_NAMESPACE;
  check_keys(a.s);
  launch(stream, "attention",
         {.blocks = blocks_of(a.s.batch * a.s.heads, a.s.tq, a.s.size, Forward::kRows),
          .threads = Forward::kThreads,
          .shared = sizeof(ForwardShared<Forward>)},
         in_fours(a.s, {a.q, a.k, a.v, a.o}) ? forward_tiles<Forward, kForwardBlocks, 4>
                                             : forward_tiles<Forward, kForwardBlocks, 1>,
         a);
}

template <>
void attention_backward(Gpu& stream, const AttentionBackwardArgs& a) {
  using namespace HWY_NAMESPACE;
  const int64_t queries = a.s.batch * a.s.heads * a.s.tq;
  const DeviceScratch<float> dots(stream, queries);
  launch(stream, "attention_query_dots", {.blocks = warp_blocks(queries)}, query_dots, a.s, a.d_o, a.o, dots.data());
  const bool fours = in_fours(a.s, {a.q, a.k, a.v, a.d_o, a.dq, a.dk, a.dv});
  launch(stream, "attention_query_gradients",
         {.blocks = blocks_of(a.s.batch * a.s.heads, a.s.tq, a.s.size, Backward::kRows),
          .threads = Backward::kThreads,
          .shared = sizeof(BackwardShared<Backward, Backward::kRows>)},
         fours ? query_gradients<Backward, kBackwardBlocks, 4> : query_gradients<Backward, kBackwardBlocks, 1>, a,
         static_cast<const float*>(dots.data()));
  launch(stream, "attention_key_gradients",
         {.blocks = blocks_of(a.s.batch * a.s.kv_heads, a.s.tk, a.s.size, Backward::kRows),
          .threads = Backward::kThreads,
          .shared = sizeof(BackwardShared<Backward, kSide>)},
         fours ? key_gradients<Backward, kBackwardBlocks, 4> : key_gradients<Backward, kBackwardBlocks, 1>, a,
         static_cast<const float*>(dots.data()));
}

}  // namespace elinvar
