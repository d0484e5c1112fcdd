#include "tensor/cuda/kernel.h"

#include "tensor/cuda/attention_gradients.h"
#include "tensor/cuda/tile_product.h"

// Each block computes a tile of kSide queries by kSide keys. Scores are recomputed wherever they are needed and exist
// only in shared memory, one tile at a time, so that the length is unlimited. The forward pass goes over the keys
// twice: the largest score must be known before the first exponential (NUMERICS.md, rule 14). Other blocks handle
// columns of o and of the gradients beyond kSide and recompute the same scores.
namespace elinvar::HWY_NAMESPACE {
namespace {

using V = Vec<float>;

constexpr int kSide = kAttentionSide, kThreads = 64;
constexpr int kBlocks = 4;  // blocks per multiprocessor: 8 warps, 256 registers per thread
static_assert(kChunk % kSide == 0);

using Mine = ThreadTile<kSide, kSide>;
using StepTile = TileOfSteps<kSide>;

// The sums of a thread's chains, by rule 8. Chains are variables of their own: in one struct with sums whose address is
// hidden, the compiler would keep them in memory, too.
struct Sums {
  ChunkSums group, total;
  // Called after `terms` terms of a chain; `last` says whether the sum ends here.
  __device__ void close(Chains& chain, int terms, bool last) {
    if (terms % static_cast<int>(kChunk) != 0 && !last) return;
    group.take(chain);
    if (terms % static_cast<int>(kChunk * kGroup) == 0 || last) total.take(group);
  }
};

// One number for each pair of a tile: at[column][row]. If it is the left factor of a product, columns are the steps.
struct alignas(16) PairTile {
  float at[kSide][kSide + 4];

  // Calls f(p, q, number) for the thread's pairs, and stores the numbers as f changes them.
  template <class F>
  __device__ void each(const Mine& mine, F f) {
#pragma unroll
    for (int q = 0; q < 8; ++q)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float4* place = reinterpret_cast<float4*>(&at[mine.col(q)][mine.row(4 * h)]);
        float4 x = *place;
        f(4 * h, q, x.x);
        f(4 * h + 1, q, x.y);
        f(4 * h + 2, q, x.z);
        f(4 * h + 3, q, x.w);
        *place = x;
      }
  }
};
struct Resident {
  const PairTile& pairs;
  int first;  // step of the first column
  __device__ void load(int, int) {}
  __device__ void store(int) {}
  __device__ const float* row(int, int k, int d) const { return pairs.at[k - first + d]; }
};

// Heads as operands: by rows (b, t, h, :), terms along the head, or by columns, terms along time.
__device__ MatrixOperand<true> rows_of(const HeadsView& x, int64_t b, int64_t h) {
  return {x.of<float>(b, h), x.time, 1, 0};
}
__device__ MatrixOperand<false> columns_of(const HeadsView& x, int64_t b, int64_t h) {
  return {x.of<float>(b, h), 1, x.time, 0};
}

// The products of a block.
template <int kWidth>
struct Block {
  StepTile *left, *right;  // two each
  int size;                // of a head

  // out = rows [i0, i0 + kSide) of x, which has x_rows, times rows [j0, j0 + kSide) of y, which has y_rows.
  __device__ void scores(const MatrixOperand<true>& x, int i0, int x_rows, const MatrixOperand<true>& y, int j0,
                         int y_rows, Chains& out) const {
    using Loader = TileLoader<MatrixOperand<true>, kSide, kThreads, kWidth>;
    clear(out);
    Streamed<Loader> a{Loader(x, 0, i0, x_rows, 0), left}, b{Loader(y, 0, j0, y_rows, 0), right};
    multiply_steps<kSide, kSide>(a, b, 0, size, SkipNothing{}, out, [](int, int) {});
    __syncthreads();
  }
  // sums += pairs times y, over the rows [k0, k0 + kSide) of y, for the columns of y from c0 on.
  __device__ void add(const PairTile& pairs, const MatrixOperand<false>& y, int k0, int y_rows, int c0,
                      Chains& sums) const {
    using Loader = TileLoader<MatrixOperand<false>, kSide, kThreads, kWidth>;
    const int end = y_rows - k0 < kSide ? y_rows : k0 + kSide;
    Resident a{pairs, k0};
    Streamed<Loader> b{Loader(y, 0, c0, size, k0), right};
    multiply_steps<kSide, kSide>(a, b, k0, end, SkipNothing{}, sums, [](int, int) {});
    __syncthreads();
  }
  // Writes value(p, sum) to row i0 + row(p) of out, from column c0 on, for rows below `rows`.
  template <class F>
  __device__ void write(const HeadsView& out, int64_t b, int64_t h, int i0, int rows, int c0, const ChunkSums& sums,
                        F value) const {
    const Mine mine;
#pragma unroll
    for (int p = 0; p < 8; ++p) {
      const int i = i0 + mine.row(p);
      if (i >= rows) continue;
      float* row = out.of<float>(b, h) + i * out.time;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int c = c0 + mine.col(4 * half);
        const float4 four = sums.four(p, half);
        float x[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int e = 0; e < 4; ++e) x[e] = value(p, V{x[e]}).v;
        store_four(row + c, x, size - c, kWidth == 4);
      }
    }
  }
};

template <int kWidth>
__global__ void __launch_bounds__(kThreads, kBlocks) forward_tiles(const __grid_constant__ AttentionArgs a) {
  __shared__ StepTile left[2], right[2];
  __shared__ PairTile weights, lanes;  // weights are e; lanes are its sums by virtual lane, the columns of a tile
  __shared__ float segments[kMostSegments][kSide], r_of[kSide];
  const AttentionShape& s = a.s;
  const int tq = static_cast<int>(s.tq), tk = static_cast<int>(s.tk), size = static_cast<int>(s.size);
  const AttentionPlace at(s.heads, tq, size);
  const int64_t kv = at.h / (s.heads / s.kv_heads), row_of_stats = (at.b * s.heads + at.h) * s.tq;
  const int t = static_cast<int>(threadIdx.x);
  const Mine mine;
  const Block<kWidth> block{left, right, size};
  const auto q = rows_of(a.q, at.b, at.h), k = rows_of(a.k, at.b, kv);
  const auto v = columns_of(a.v, at.b, kv);
  const V scale{static_cast<float>(s.scale)};

  int visible[8];
  V m[8];
#pragma unroll
  for (int p = 0; p < 8; ++p) {
    const int i = at.first + mine.row(p);
    visible[p] = i < tq ? static_cast<int>(s.visible(i)) : 0;
    m[p] = V{-std::numeric_limits<float>::infinity()};
  }
  const int keys = static_cast<int>(s.visible(at.first + kSide < tq ? at.first + kSide - 1 : tq - 1));

  Chains x;
  for (int j0 = 0; j0 < keys; j0 += kSide) {
    block.scores(q, at.first, tq, k, j0, tk, x);
#pragma unroll
    for (int p = 0; p < 8; ++p)
#pragma unroll
      for (int c = 0; c < 8; ++c)
        if (j0 + mine.col(c) < visible[p]) {
          const V score = x[p][c] * scale;
          m[p] = select(m[p] < score, score, m[p]);
        }
  }
#pragma unroll
  for (int p = 0; p < 8; ++p)
#pragma unroll
    for (int other = 4; other > 0; other /= 2) {  // the eight threads that share the row
      const V of_other{__shfl_xor_sync(kWholeWarp, m[p].v, other)};
      m[p] = select(m[p] < of_other, of_other, m[p]);
    }

  for (int c = 0; c < kSide; ++c) lanes.at[c][t] = 0.0f;
  for (int segment = 0; segment < kMostSegments; ++segment) segments[segment][t] = 0.0f;
  __syncthreads();
  Chains chain;
  clear(chain);
  Sums o;
  for (int j0 = 0; j0 < keys; j0 += kSide) {
    block.scores(q, at.first, tq, k, j0, tk, x);
    weights.each(mine, [&](int p, int c, float& e) {
      e = j0 + mine.col(c) < visible[p] ? exp(x[p][c] * scale - m[p]).v : 0.0f;
      x[p][c] = V{e};
    });
    lanes.each(mine, [&](int p, int c, float& lane) { lane = lane + x[p][c].v; });
    block.add(weights, v, j0, tk, at.column, chain);
    const bool last = j0 + kSide >= keys;
    o.close(chain, j0 + kSide, last);
    if ((j0 + kSide) % static_cast<int>(kRowSegment) != 0 && !last) continue;
    for (int half = kSide / 2; half > 0; half /= 2)  // one thread per row; `add` has the barriers
      for (int c = 0; c < half; ++c) lanes.at[c][t] = lanes.at[c][t] + lanes.at[c + half][t];
    segments[j0 / kRowSegment][t] = 0.0f + lanes.at[0][t];
    for (int c = 0; c < kSide; ++c) lanes.at[c][t] = 0.0f;
  }
  // The segments' sums are reduced as a row whose other lanes are zero.
  for (int half = kMostSegments / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) segments[i][t] = segments[i][t] + segments[i + half][t];
  r_of[t] = 1.0f / (0.0f + segments[0][t]);
  __syncthreads();
  if (at.column == 0 && t % 8 == 0)
#pragma unroll
    for (int p = 0; p < 8; ++p)
      if (const int i = at.first + mine.row(p); i < tq) {
        a.m.as<float>()[row_of_stats + i] = m[p].v;
        a.r.as<float>()[row_of_stats + i] = r_of[mine.row(p)];
      }
  block.write(a.o, at.b, at.h, at.first, tq, at.column, o.total,
              [&](int p, V sum) { return sum * V{r_of[mine.row(p)]}; });
}

// Computes dq of a tile of queries.
template <int kWidth>
__global__ void __launch_bounds__(kThreads, kBlocks)
    query_gradients(const __grid_constant__ AttentionBackwardArgs a, const float* dots) {
  __shared__ StepTile left[2], right[2];
  __shared__ PairTile pairs;  // p, then ds
  __shared__ QueryStats stats[kSide];
  const AttentionShape& s = a.s;
  const int tq = static_cast<int>(s.tq), tk = static_cast<int>(s.tk), size = static_cast<int>(s.size);
  const AttentionPlace at(s.heads, tq, size);
  const int64_t kv = at.h / (s.heads / s.kv_heads);
  const Mine mine;
  const Block<kWidth> block{left, right, size};
  const auto q = rows_of(a.q, at.b, at.h), d_o = rows_of(a.d_o, at.b, at.h), k = rows_of(a.k, at.b, kv),
             v = rows_of(a.v, at.b, kv);
  const auto k_columns = columns_of(a.k, at.b, kv);
  const V scale{static_cast<float>(s.scale)};
  load_stats(a, dots, at.b, at.h, at.first, stats);
  int visible[8];
#pragma unroll
  for (int p = 0; p < 8; ++p) {
    const int i = at.first + mine.row(p);
    visible[p] = i < tq ? static_cast<int>(s.visible(i)) : 0;
  }
  const int keys = static_cast<int>(s.visible(at.first + kSide < tq ? at.first + kSide - 1 : tq - 1));

  Chains chain;
  clear(chain);
  Sums dq;
  for (int j0 = 0; j0 < keys; j0 += kSide) {
    Chains x;
    block.scores(q, at.first, tq, k, j0, tk, x);
    pairs.each(mine, [&](int p, int c, float& pair) {
      pair = j0 + mine.col(c) < visible[p] ? probability(x[p][c], scale, stats[mine.row(p)]) : 0.0f;
    });
    block.scores(d_o, at.first, tq, v, j0, tk, x);
    pairs.each(mine, [&](int p, int c, float& pair) {
      pair = j0 + mine.col(c) < visible[p] ? score_gradient(pair, x[p][c], scale, stats[mine.row(p)]) : 0.0f;
    });
    block.add(pairs, k_columns, j0, tk, at.column, chain);
    dq.close(chain, j0 + kSide, j0 + kSide >= keys);
  }
  block.write(a.dq, at.b, at.h, at.first, tq, at.column, dq.total, [](int, V sum) { return sum; });
}

// Computes dk and dv of a tile of keys, over the queries that see one of them.
template <int kWidth>
__global__ void __launch_bounds__(kThreads, kBlocks)
    key_gradients(const __grid_constant__ AttentionBackwardArgs a, const float* dots) {
  __shared__ StepTile left[2], right[2];
  __shared__ PairTile pairs;  // a row for each key, a column for each query: p, then ds
  __shared__ QueryStats stats[kSide];
  const AttentionShape& s = a.s;
  const int tq = static_cast<int>(s.tq), tk = static_cast<int>(s.tk), size = static_cast<int>(s.size);
  const AttentionPlace at(s.kv_heads, tk, size);
  const int64_t shared = s.heads / s.kv_heads;
  const Mine mine;
  const Block<kWidth> block{left, right, size};
  const auto k = rows_of(a.k, at.b, at.h), v = rows_of(a.v, at.b, at.h);
  const V scale{static_cast<float>(s.scale)};
  const int unseen = s.causal ? at.first - (tk - tq) : 0;  // queries before this one see none
  const int first = unseen > 0 ? unseen / kSide * kSide : 0;

  ChunkSums dk, dv;
  for (int64_t h = at.h * shared; h < (at.h + 1) * shared; ++h) {
    const auto q = rows_of(a.q, at.b, h), d_o = rows_of(a.d_o, at.b, h);
    const auto q_columns = columns_of(a.q, at.b, h), d_o_columns = columns_of(a.d_o, at.b, h);
    Chains chain_of_v;
    clear(chain_of_v);
    ChunkSums chain_of_k;  // put away, as scores need the registers
    Sums of_k, of_v;
    for (int i0 = first; i0 < tq; i0 += kSide) {
      __syncthreads();  // the previous statistics are no longer read
      load_stats(a, dots, at.b, h, i0, stats);
      Chains x;
      const auto sees = [&](int p, int c) {
        const int i = i0 + mine.col(c);
        return i < tq && at.first + mine.row(p) < s.visible(i);
      };
      block.scores(k, at.first, tk, q, i0, tq, x);
      pairs.each(mine, [&](int p, int c, float& pair) {
        pair = sees(p, c) ? probability(x[p][c], scale, stats[mine.col(c)]) : 0.0f;
      });
      block.add(pairs, d_o_columns, i0, tq, at.column, chain_of_v);
      block.scores(v, at.first, tk, d_o, i0, tq, x);
      pairs.each(mine, [&](int p, int c, float& pair) {
        pair = sees(p, c) ? score_gradient(pair, x[p][c], scale, stats[mine.col(c)]) : 0.0f;
      });
      const bool last = i0 + kSide >= tq;
      chain_of_k.get(x);
      block.add(pairs, q_columns, i0, tq, at.column, x);
      of_k.close(x, i0 + kSide, last);
      chain_of_k.put(x);
      of_v.close(chain_of_v, i0 + kSide, last);
    }
    dk.take(of_k.total);
    dv.take(of_v.total);
  }
  const auto as_it_is = [](int, V sum) { return sum; };
  block.write(a.dk, at.b, at.h, at.first, tk, at.column, dk, as_it_is);
  block.write(a.dv, at.b, at.h, at.first, tk, at.column, dv, as_it_is);
}

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
  launch(stream, "attention", {.blocks = blocks_of(a.s.batch * a.s.heads, a.s.tq, a.s.size), .threads = kThreads},
         in_fours(a.s, {a.q, a.k, a.v, a.o}) ? forward_tiles<4> : forward_tiles<1>, a);
}

template <>
void attention_backward(Gpu& stream, const AttentionBackwardArgs& a) {
  using namespace HWY_NAMESPACE;
  const int64_t queries = a.s.batch * a.s.heads * a.s.tq;
  const DeviceScratch<float> dots(stream, queries);
  launch(stream, "attention_query_dots", {.blocks = warp_blocks(queries)}, query_dots, a.s, a.d_o, a.o, dots.data());
  const bool fours = in_fours(a.s, {a.q, a.k, a.v, a.d_o, a.dq, a.dk, a.dv});
  launch(stream, "attention_query_gradients",
         {.blocks = blocks_of(a.s.batch * a.s.heads, a.s.tq, a.s.size), .threads = kThreads},
         fours ? query_gradients<4> : query_gradients<1>, a, static_cast<const float*>(dots.data()));
  launch(stream, "attention_key_gradients",
         {.blocks = blocks_of(a.s.batch * a.s.kv_heads, a.s.tk, a.s.size), .threads = kThreads},
         fours ? key_gradients<4> : key_gradients<1>, a, static_cast<const float*>(dots.data()));
}

}  // namespace elinvar
