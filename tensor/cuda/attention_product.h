#pragma once
// The products of a block of portable attention: tiles of kRows queries (or keys) by 64 of the others. A thread has 8
// rows and kOwn columns of a tile.
#include "tensor/cuda/attention_tile.h"
#include "tensor/cuda/tile_product.h"

namespace elinvar::HWY_NAMESPACE {

// Returns x, but hides from the compiler that the result equals x. The compiler then computes what depends on the
// result where it is used, and does not keep it in a register through loops that need all the registers of a thread.
__device__ inline int hidden(int x) {
#ifdef __CUDACC__
  asm volatile("" : "+r"(x));
#endif
  return x;
}

// A thread's place in a tile: four rows in either half, and four columns, or four in either half. The 8 (or 16) threads
// that share rows are in one warp. Lanes 2 i and 2 i + 1 read the same columns, and lanes i and i ^ 2 the same rows: so
// a GPU serves half a warp, of which each lane reads 16 bytes, in one access.
template <int kRowsOfTile, int kOwnColumns>
struct AttentionThread {
  static constexpr int kRows = kRowsOfTile, kOwn = kOwnColumns, kThreads = kRows * kAttentionSide / (8 * kOwn);
  static constexpr int kAcross = kAttentionSide / kOwn;  // threads that share a row
  static_assert(kOwn == 4 || kOwn == 8);
  int i, j;
  __device__ AttentionThread() {
    const int t = static_cast<int>(threadIdx.x), lane = t % 32, row = lane % 2 + lane / (2 * kAcross) * 2;
    i = (t / 32 * (32 / kAcross) + row) * 4;
    j = across() * 4;
  }
  static constexpr int row_offset(int p) { return p / 4 * (kRows / 2) + p % 4; }
  static constexpr int column_offset(int q) { return q / 4 * (kAttentionSide / 2) + q % 4; }
  __device__ int row(int p) const { return i + row_offset(p); }
  __device__ int col(int q) const { return j + column_offset(q); }
  // Which of the threads that share its rows it is; their lanes differ in these bits.
  __device__ static int across() { return static_cast<int>(threadIdx.x) / 2 % kAcross; }
  static constexpr int kFirstBit = 2, kLastBit = kAcross;
};

// One number for each pair of a tile, in fours of rows. Fours of neighbouring columns are in different banks. If it is
// the left factor of a product, columns are the steps.
template <class Mine>
struct alignas(16) ScoreTile {
  float at[kAttentionSide][Mine::kRows];

  // Calls f(p, q, number) for the thread's pairs, and stores the numbers as f changes them.
  template <class F>
  __device__ void each(const Mine& mine, F f) {
    float* const first = &at[mine.j][mine.i ^ swizzle(mine.j)];  // swizzle(mine.col(q)) is the same for all q
#pragma unroll
    for (int q = 0; q < Mine::kOwn; ++q)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float4* const place =
            reinterpret_cast<float4*>(first + Mine::column_offset(q) * Mine::kRows + Mine::row_offset(4 * h));
        float4 x = *place;
        f(4 * h, q, x.x);
        f(4 * h + 1, q, x.y);
        f(4 * h + 2, q, x.z);
        f(4 * h + 3, q, x.w);
        *place = x;
      }
  }
  __device__ static int swizzle(int column) { return column / 4 % 4 * 8; }
};

// The sides of a product: load() and store() as in tile_product.h. four_steps(at, k, d, i) are the rows or columns from
// i on of step k + d, d a multiple of four, of buffer `at`; those of the next three steps follow kStep apart.
template <class Mine>
struct PairSteps {
  static constexpr int kStep = Mine::kRows;
  const ScoreTile<Mine>& pairs;
  int first;  // step of the first column
  __device__ void load(int, int) {}
  __device__ void store(int) {}
  __device__ const float* four_steps(int, int k, int d, int i) const {
    const int column = k - first + d;
    return &pairs.at[column][i ^ ScoreTile<Mine>::swizzle(column)];
  }
};
template <class Loader>
struct LoadedSteps {
  using Tile = typename Loader::Tile;
  static constexpr int kStep = Tile::kRow;
  Loader loader;
  Tile* tiles;  // two
  __device__ void load(int by, int steps) { loader.load(by, steps); }
  __device__ void store(int at) { loader.store(tiles[at]); }
  __device__ const float* four_steps(int at, int, int d, int i) const { return tiles[at].at[d] + i; }
};

// Adds the products of steps [k, k_end) to the chains.
template <class Mine, class A, class B>
__device__ void multiply_pairs(const Mine& mine, A& a, B& b, int k, int k_end, ChainsOf<Mine::kOwn>& chain) {
  using V = Vec<float>;
  constexpr int kOwn = Mine::kOwn;
  a.load(0, k_end - k);
  b.load(0, k_end - k);
  a.store(0);
  b.store(0);
  for (int at = 0; k < k_end; at ^= 1) {
    const int next = k + kDepth;
    a.load(kDepth, k_end - next);
    b.load(kDepth, k_end - next);
    __syncthreads();  // `at` is complete, the other buffer is no longer read, and no compiler delays the loads
    const float *of_a = nullptr, *of_b = nullptr;
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      if (d % 4 == 0) of_a = a.four_steps(at, k, d, mine.i), of_b = b.four_steps(at, k, d, mine.j);
      V row[8], col[kOwn];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float4 x = *reinterpret_cast<const float4*>(of_a + d % 4 * A::kStep + h * (Mine::kRows / 2));
        row[4 * h] = V{x.x}, row[4 * h + 1] = V{x.y}, row[4 * h + 2] = V{x.z}, row[4 * h + 3] = V{x.w};
      }
#pragma unroll
      for (int h = 0; h < kOwn / 4; ++h) {
        const float4 y = *reinterpret_cast<const float4*>(of_b + d % 4 * B::kStep + h * (kAttentionSide / 2));
        col[4 * h] = V{y.x}, col[4 * h + 1] = V{y.y}, col[4 * h + 2] = V{y.z}, col[4 * h + 3] = V{y.w};
      }
#pragma unroll
      for (int p = 0; p < 8; ++p)
#pragma unroll
        for (int q = 0; q < kOwn; ++q) chain[p][q] = fma(row[p], col[q], chain[p][q]);
    }
    a.store(at ^ 1);
    b.store(at ^ 1);
    k = next;
  }
}

// Heads as operands: by rows (b, t, h, :), terms along the head, or by columns, terms along time. Each product finds
// their addresses anew.
__device__ inline float* hidden_head(const HeadsView& x, int64_t b, int64_t h) {
  return x.of<float>(hidden(static_cast<int>(b)), hidden(static_cast<int>(h)));
}
__device__ inline MatrixOperand<true> rows_of(const HeadsView& x, int64_t b, int64_t h) {
  return {hidden_head(x, b, h), x.time, 1, 0};
}
__device__ inline MatrixOperand<false> columns_of(const HeadsView& x, int64_t b, int64_t h) {
  return {hidden_head(x, b, h), 1, x.time, 0};
}

// The products of a block. kWidth is that of TileLoader.
template <class Mine, int kWidth>
struct AttentionProducts {
  using Own = ChainsOf<Mine::kOwn>;
  TileOfSteps<Mine::kRows>* left;      // two
  TileOfSteps<kAttentionSide>* right;  // two
  int size;                            // of a head

  // out = rows [i0, i0 + kRows) of x, which has x_rows, times rows [j0, j0 + 64) of y, which has y_rows.
  __device__ void scores(const MatrixOperand<true>& x, int i0, int x_rows, const MatrixOperand<true>& y, int j0,
                         int y_rows, Own& out) const {
    using Left = TileLoader<MatrixOperand<true>, Mine::kRows, Mine::kThreads, kWidth>;
    using Right = TileLoader<MatrixOperand<true>, kAttentionSide, Mine::kThreads, kWidth>;
    i0 = hidden(i0);
    clear(out);
    LoadedSteps<Left> a{Left(x, 0, i0, x_rows, 0), left};
    LoadedSteps<Right> b{Right(y, 0, j0, y_rows, 0), right};
    multiply_pairs(Mine(), a, b, 0, size, out);
    __syncthreads();
  }
  // sums += pairs times y, over the rows [k0, k0 + 64) of y, for the columns of y from c0 on.
  __device__ void add(const ScoreTile<Mine>& pairs, const MatrixOperand<false>& y, int k0, int y_rows, int c0,
                      Own& sums) const {
    using Right = TileLoader<MatrixOperand<false>, kAttentionSide, Mine::kThreads, kWidth>;
    const int end = y_rows - k0 < kAttentionSide ? y_rows : k0 + kAttentionSide;
    PairSteps<Mine> a{pairs, k0};
    LoadedSteps<Right> b{Right(y, 0, c0, size, k0), right};
    multiply_pairs(Mine(), a, b, k0, end, sums);
    __syncthreads();
  }
  // Writes value(p, sum) to row row(p) of the tile in out, for rows below `rows`.
  template <class F>
  __device__ void write(const HeadsView& out, const AttentionPlace& at, int rows, const ChunkSumsOf<Mine::kOwn>& sums,
                        F value) const {
    const Mine mine;
#pragma unroll
    for (int p = 0; p < 8; ++p) {
      const int i = at.first + mine.row(p);
      if (i >= rows) continue;
      float* row = out.of<float>(at.b, at.h) + i * out.time;
#pragma unroll
      for (int four = 0; four < Mine::kOwn / 4; ++four) {
        const int c = at.column + mine.col(4 * four);
        const float4 sum = sums.four(p, four);
        float x[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
        for (int e = 0; e < 4; ++e) x[e] = value(p, Vec<float>{x[e]}).v;
        store_four(row + c, x, size - c, kWidth == 4);
      }
    }
  }
};

// The sums of a thread's chains, by rule 8. Chains are variables of their own: in one struct with sums whose address is
// hidden, the compiler would keep them in memory, too.
template <int kOwn>
struct SumsOfChunks {
  ChunkSumsOf<kOwn> group, total;
  // Called after `terms` terms of a chain; `last` says whether the sum ends here.
  __device__ void close(ChainsOf<kOwn>& chain, int terms, bool last) {
    if (terms % static_cast<int>(kChunk) != 0 && !last) return;
    group.take(chain);
    if (terms % static_cast<int>(kChunk * kGroup) == 0 || last) total.take(group);
  }
};

}  // namespace elinvar::HWY_NAMESPACE
