#pragma once
// The product under matmul and convolutions on a GPU, in canonical order (NUMERICS.md, rule 8): C[i, j] sums A[i, k]
// B[k, j] in chains of kChunk, which add up to groups and groups to the result.
//
// A block computes a tile of C (tile_product.h) over a slice of k (product_plan.h). Where k has several slices, their
// sums go to scratch memory and are added up, in order, by a second kernel.
//
// A Factors type has the operands and the destination:
//   int m, n, k, batch;                        // extents, k in nominal terms
//   A a; B b;                                  // operands (operand.h); the columns of B are its lines
//   bool in_fours() const;                     // whether in_fours() holds for both operands
//   bool fours_of_c() const;                   // whether rows of C begin at multiples of 16 bytes
//   float* row(int batch, int i) const;        // address of row i of C; nullptr if there is none
//   const float* bias(int batch) const;        // n numbers to add; may be nullptr
//   Skip skip(int batch) const;                // next(k): the first step from k on, in multiples of kDepth, with terms
//   using Result;                              // itself, or a base that has no operands
#include <initializer_list>

#include "tensor/cuda/product_plan.h"
#include "tensor/cuda/tile_product.h"

namespace elinvar::HWY_NAMESPACE {

// The work of a launch: slices [first, first + count) of `length`, stored to `sums` [slice][batch][m][n] unless that is
// null.
struct ProductSlices {
  int first, count, length;
  float* sums;
  bool fours_of_c;  // rows of C, of the bias and of `sums` allow stores of four floats
};

// Maps adjacent blocks to tiles that share rows of A and columns of B: tiles are counted down kPanel of them, then
// right.
__device__ inline void place_of_tile(int tile, int down, int across, int& i, int& j) {
  constexpr int kPanel = 16;
  const int panel = tile / (kPanel * across), in_panel = tile - panel * kPanel * across;
  const int high = down - panel * kPanel < kPanel ? down - panel * kPanel : kPanel;
  j = in_panel / high;
  i = panel * kPanel + in_panel - j * high;
}

// The tile that a block computes.
struct TileOfProduct {
  int i, j, batch, slice;  // the first row and column
  template <int kRows, int kCols, class Factors>
  __device__ static TileOfProduct of_block(const Factors& f, int first_slice) {
    const int down = (f.m + kRows - 1) / kRows, across = (f.n + kCols - 1) / kCols;
    const int block = static_cast<int>(blockIdx.x), rest = block / (down * across);
    TileOfProduct to;
    place_of_tile(block - rest * (down * across), down, across, to.i, to.j);
    to.i *= kRows, to.j *= kCols;
    to.batch = rest % f.batch, to.slice = first_slice + rest / f.batch;
    return to;
  }
};

template <class Factors, int kRows, int kCols, int kWidth>
__global__ void __launch_bounds__(kRows* kCols / 64, 512 / (kRows * kCols / 64))
    product_tiles(const __grid_constant__ Factors f, const ProductSlices slices) {
  using V = Vec<float>;
  constexpr int kThreads = kRows * kCols / 64;
  using LoadA = TileLoader<decltype(f.a), kRows, kThreads, kWidth>;
  using LoadB = TileLoader<decltype(f.b), kCols, kThreads, kWidth>;
  __shared__ typename LoadA::Tile a_tiles[2];
  __shared__ typename LoadB::Tile b_tiles[2];

  __shared__ TileOfProduct tile;  // for after the loop, which needs all registers

  const auto [i_first, j_first, batch_of_terms, slice_of_terms] =
      TileOfProduct::of_block<kRows, kCols>(f, slices.first);
  if (threadIdx.x == 0) tile = {i_first, j_first, batch_of_terms, slice_of_terms};
  const int k_begin = slice_of_terms * slices.length;
  const int k_end = f.k - k_begin < slices.length ? f.k : k_begin + slices.length;

  using Mine = ThreadTile<kRows, kCols, true>;
  Chains chain;
  clear(chain);
  ChunkSums group(k_end - k_begin > static_cast<int>(kChunk));
  Streamed<LoadA> a{LoadA(f.a, batch_of_terms, i_first, f.m, k_begin), a_tiles};
  Streamed<LoadB> b{LoadB(f.b, batch_of_terms, j_first, f.n, k_begin), b_tiles};
  static_assert((kChunk & (kChunk - 1)) == 0, "steps of two chunks differ in a bit above those of a chunk");
  multiply_steps<kRows, kCols>(
      a, b, k_begin, k_end, f.skip(batch_of_terms), chain,
      [&](int k, int next) {
        if (next < k_end && (next ^ k) >= static_cast<int>(kChunk)) group.take(chain);
      },
      Mine());

  __syncthreads();
  const auto [i0, j0, batch, slice] = tile;
  if (slices.length > static_cast<int>(kChunk) && f.k - slice * slices.length > static_cast<int>(kChunk)) {
    group.take(chain);
    group.get(chain);
  } else {  // the only chunk, and most often all of k
#pragma unroll
    for (int p = 0; p < 8; ++p)
#pragma unroll
      for (int q = 0; q < 8; ++q) chain[p][q] = V{0.0f} + chain[p][q];
  }
  const Mine mine;
  constexpr bool kWholeFours = kWidth == 4 && !decltype(f.b)::kAlongK;  // columns exist by fours
  const float* bias = slices.sums ? nullptr : f.bias(batch);
#pragma unroll
  for (int p = 0; p < 8; ++p) {
    const int i = i0 + mine.row(p);
    if (i >= f.m) continue;
    float* c = slices.sums ? slices.sums + ((int64_t{slice - slices.first} * f.batch + batch) * f.m + i) * int64_t{f.n}
                           : f.row(batch, i);
    if (!c) continue;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int j = j0 + mine.col(4 * h), count = f.n - j;
      if (kWholeFours && count <= 0) continue;
      const V* const four = &chain[p][4 * h];
      float x[4] = {four[0].v, four[1].v, four[2].v, four[3].v};
      if (bias) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (kWholeFours || e < count) x[e] = (V{x[e]} + V{bias[j + e]}).v;
      }
      if constexpr (kWholeFours) *reinterpret_cast<float4*>(c + j) = make_float4(x[0], x[1], x[2], x[3]);
      else store_four(c + j, x, count, slices.fours_of_c);
    }
  }
}

// Adds the slices of each element to the result: chunks to groups and these to the total, or groups to what C holds.
template <class Result, bool kChunks>
__global__ void add_slices(const __grid_constant__ Result f, const ProductSlices slices, bool last) {
  using V = Vec<float>;
  const int64_t all = int64_t{f.batch} * f.m * f.n;
  for (int64_t at = thread_of_grid(); at < all; at += grid_stride()) {
    const int64_t row = at / f.n;
    const int batch = static_cast<int>(row / f.m), i = static_cast<int>(row - int64_t{batch} * f.m),
              j = static_cast<int>(at - row * f.n);
    float* c = f.row(batch, i);
    if (!c) continue;
    V total{!kChunks && slices.first > 0 ? c[j] : 0.0f}, group{0.0f};
    int s = 0;
#pragma unroll 4
    do {
      const V sum{slices.sums[s * all + at]};
      ++s;
      if constexpr (kChunks) {
        group = group + sum;
        if (s % static_cast<int>(kGroup) != 0 && s < slices.count) continue;
        total = total + group;
        group = V{0.0f};
      } else {
        total = total + sum;
      }
    } while (s < slices.count);
    const float* bias = last ? f.bias(batch) : nullptr;
    c[j] = bias ? (total + V{bias[j]}).v : total.v;
  }
}

inline GpuExtent gpu_extent() {
#ifdef __CUDACC__
  constexpr int64_t kScratch = 256 << 20;
#else
  constexpr int64_t kScratch = 64 << 10;  // so that small products are cut in all ways
#endif
  return {.multiprocessors = multiprocessors(), .scratch = kScratch};
}

// Refuses extents too large for the kernels' int arithmetic.
inline void check_extents(const char* op, std::initializer_list<int64_t> extents) {
  for (const int64_t extent : extents)
    if (extent > INT32_MAX / 2)
      throw UsageError("[" + std::string(op) + "] a GPU takes extents to 2^30, got " + std::to_string(extent) +
                       "; use --device cpu, or a smaller batch");
}

template <class Factors>
void multiply(Gpu& stream, const char* name, const Factors& f) {
  if (f.m == 0 || f.n == 0 || f.batch == 0) return;
  const ProductPlan plan = plan_product(f.m, f.n, f.k, f.batch, gpu_extent());
  const bool fours = f.in_fours() && (f.b.kAlongK || f.fours_of_c());
  const auto launch_tiles = [&]<int kTile, int kWidth>(const ProductSlices& slices) {
    constexpr ProductTile kShape = kProductTiles[kTile];
    const int64_t tiles = int64_t{(f.m + kShape.rows - 1) / kShape.rows} * ((f.n + kShape.cols - 1) / kShape.cols);
    launch(stream, name, {.blocks = tiles * f.batch * slices.count, .threads = kShape.threads()},
           product_tiles<Factors, kShape.rows, kShape.cols, kWidth>, f, slices);
  };
  DeviceScratch<float> sums(stream, plan.slices > 1 ? plan.slices_once * f.batch * f.m * f.n : 0);
  for (int64_t first = 0; first < plan.slices; first += plan.slices_once) {
    const int64_t count = std::min(plan.slices - first, plan.slices_once);
    const ProductSlices slices{.first = static_cast<int>(first),
                               .count = static_cast<int>(count),
                               .length = static_cast<int>(plan.slice),
                               .sums = plan.slices > 1 ? sums.data() : nullptr,
                               .fours_of_c = f.n % 4 == 0 && (plan.slices > 1 || f.fours_of_c())};
    if (!fours) launch_tiles.template operator()<1, 1>(slices);
    else if (plan.tile == 0) launch_tiles.template operator()<0, 4>(slices);
    else if (plan.tile == 1) launch_tiles.template operator()<1, 4>(slices);
    else launch_tiles.template operator()<2, 4>(slices);
    if (plan.slices == 1) continue;
    using Result = typename Factors::Result;
    const auto kernel = plan.slice == kChunk ? add_slices<Result, true> : add_slices<Result, false>;
    launch(stream, name, {.blocks = blocks_for(int64_t{f.batch} * f.m * f.n)}, kernel, static_cast<const Result&>(f),
           slices, first + count == plan.slices);
  }
}

}  // namespace elinvar::HWY_NAMESPACE
