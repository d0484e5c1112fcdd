#pragma once
// The product under exact matmul and exact convolutions on a GPU: C[i, j] sums A[i, k] B[k, j] over pairs k as integers
// (NUMERICS.md, "Exact numerics"), on tensor cores for integers of 8 bits. Four products of the bytes h and l of
// each factor make the one of 14 bits. A sum of integers has one value, so no tile, slice or order shows in a result.
//
// A block computes a tile of C over a slice of k, which is short enough for sums in int32. Where k has several slices,
// their sums go to scratch memory as int64, and a second kernel adds them up.
//
// A Factors type is that of product.h, with operands of pairs, of which in_fours() concerns those along k alone, and
//   int32_t row_exponent(int batch, int i) const;      // of E4, row and column of C
//   int32_t column_exponent(int batch, int j) const;
#include <limits>

#include "tensor/cuda/pair_slices.h"
#include "tensor/cuda/product.h"
#include "tensor/cuda/tensor_core.h"
#include "tensor/quantized.h"

namespace elinvar::HWY_NAMESPACE {

struct ExactSlices {
  int length;  // of a slice, in pairs
  int count;
  int64_t* sums;  // [slice][batch][m][n]; null for a single slice
};

// Returns x 2^(exponent - 26), multiplied in two factors, because the power may be beyond the exponents of float32. The
// first has as much of it as it can, so that only the last rounds.
__device__ inline float scaled(float x, int32_t exponent) {
  if (exponent >= kNotFinite / 2) return std::numeric_limits<float>::quiet_NaN();
  const auto limited = [](int32_t e) { return e < -126 ? -126 : e > 127 ? 127 : e; };
  exponent -= 2 * kFractionBits;
  const int32_t first = limited(exponent), second = limited(exponent - first);
  return x * power_of_two(first) * power_of_two(second);
}

// A warp's part of a tile of 64 x 64: 32 x 32 of each of the three sums, as 2 x 4 tiles of the instruction.
class ExactSums {
 public:
  static constexpr int kSide = 64, kThreads = 128;
  using Tile = SliceTile<kSide>;

  __device__ void add(const Tile& a, const Tile& b) {
    BytesA h[2], l[2];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const int line = row() + 16 * m + lane_group();
      const uint4 x = a.at[Tile::place(line, lane_in_group())], y = a.at[Tile::place(line + 8, lane_in_group())];
      h[m] = {{x.x, y.x, x.y, y.y}};
      l[m] = {{x.z, y.z, x.w, y.w}};
    }
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const uint4 x = b.at[Tile::place(col() + 8 * n + lane_group(), lane_in_group())];
      const BytesB of_h{{x.x, x.y}}, of_l{{x.z, x.w}};
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        multiply_add(high_[m][n], h[m], of_h);
        multiply_add(middle_[m][n], h[m], of_l);
        multiply_add(low_[m][n], l[m], of_l);
      }
#pragma unroll
      for (int m = 0; m < 2; ++m) multiply_add(middle_[m][n], l[m], of_h);
    }
  }

  // Calls f(i, j, sum) for the thread's sums in the tile.
  template <class F>
  __device__ void each(F f) const {
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int64_t high = high_[m][n].at[e], middle = middle_[m][n].at[e];
          f(row() + 16 * m + 8 * (e / 2) + lane_group(), col() + 8 * n + 2 * lane_in_group() + e % 2,
            high * (1 << 16) + middle * (1 << 8) + low_[m][n].at[e]);
        }
  }

 private:
  __device__ static int row() { return static_cast<int>(threadIdx.x) / 64 * 32; }
  __device__ static int col() { return static_cast<int>(threadIdx.x) / 32 % 2 * 32; }

  IntegerSums high_[2][4], middle_[2][4], low_[2][4];
};

// Shared memory of a block: tiles of the factors, and after them the rounded sums, which are written to C by rows.
union ExactShared {
  struct Tiles {
    ExactSums::Tile a[2], b[2];
  } tiles;
  struct Results {
    float at[ExactSums::kSide][ExactSums::kSide + 8];  // padded, so that there are no bank conflicts
    int32_t row_exponents[ExactSums::kSide];
  } results;
};

template <class Factors, int kWidth>
__global__ void __launch_bounds__(ExactSums::kThreads, 2)
    exact_tiles(const __grid_constant__ Factors f, const ExactSlices slices) {
  constexpr int kSide = ExactSums::kSide, kThreads = ExactSums::kThreads;
  using LoadA = PairLoader<decltype(f.a), kSide, kThreads, kWidth>;
  using LoadB = PairLoader<decltype(f.b), kSide, kThreads, kWidth>;
  auto& [a_tiles, b_tiles] = *dynamic_shared<ExactShared::Tiles>();

  const TileOfProduct tile = TileOfProduct::of_block<kSide, kSide>(f, 0);
  int k = tile.slice * slices.length;
  const int k_end = f.k - k < slices.length ? f.k : k + slices.length;
  ExactSums sums;
  LoadA a(f.a, tile.batch, tile.i, f.m, k);
  LoadB b(f.b, tile.batch, tile.j, f.n, k);
  const auto skip = f.skip(tile.batch);
  const int first = skip.next(k);
  a.load(first - k, k_end - first);
  b.load(first - k, k_end - first);
  a.store(a_tiles[0]);
  b.store(b_tiles[0]);
  k = first;
  for (int at = 0; k < k_end; at ^= 1) {
    const int next = skip.next(k + kPairSteps);
    a.load(next - k, k_end - next);
    b.load(next - k, k_end - next);
    __syncthreads();  // `at` is complete, and the other buffer is no longer read
    sums.add(a_tiles[at], b_tiles[at]);
    a.store(a_tiles[at ^ 1]);
    b.store(b_tiles[at ^ 1]);
    k = next;
  }

  auto& results = *dynamic_shared<ExactShared::Results>();
  const int thread = static_cast<int>(threadIdx.x), j = tile.j + thread % kSide;
  int64_t* const partial =
      slices.sums ? slices.sums + (int64_t{tile.slice} * f.batch + tile.batch) * f.m * f.n : nullptr;
  __syncthreads();
  sums.each([&](int row, int column, int64_t sum) {
    if (!partial) results.at[row][column] = static_cast<float>(sum);
    else if (tile.i + row < f.m && tile.j + column < f.n)
      partial[int64_t{tile.i + row} * f.n + (tile.j + column)] = sum;
  });
  if (partial) return;
  if (thread < kSide && tile.i + thread < f.m)
    results.row_exponents[thread] = f.row_exponent(tile.batch, tile.i + thread);
  __syncthreads();
  if (j >= f.n) return;
  const int32_t exponent = f.column_exponent(tile.batch, j);
  const float* const bias = f.bias(tile.batch);
  const float added = bias ? bias[j] : 0.0f;
#pragma unroll 1
  for (int row = thread / kSide; row < kSide && tile.i + row < f.m; row += kThreads / kSide) {
    float* const c = f.row(tile.batch, tile.i + row);
    const float x = scaled(results.at[row][thread % kSide], results.row_exponents[row] + exponent);
    if (c) c[j] = bias ? x + added : x;
  }
}

template <class Factors>
__global__ void add_exact_slices(const __grid_constant__ Factors f, const ExactSlices slices) {
  const int64_t all = int64_t{f.batch} * f.m * f.n;
  for (int64_t at = thread_of_grid(); at < all; at += grid_stride()) {
    const int64_t row = at / f.n;
    const int batch = static_cast<int>(row / f.m), i = static_cast<int>(row - int64_t{batch} * f.m),
              j = static_cast<int>(at - row * f.n);
    float* const c = f.row(batch, i);
    if (!c) continue;
    int64_t sum = 0;
    for (int s = 0; s < slices.count; ++s) sum += slices.sums[s * all + at];
    const float x = scaled(static_cast<float>(sum), f.row_exponent(batch, i) + f.column_exponent(batch, j));
    const float* const bias = f.bias(batch);
    c[j] = bias ? x + bias[j] : x;
  }
}

template <class Factors>
void multiply_exactly(Gpu& stream, const char* name, const Factors& f) {
  if (f.m == 0 || f.n == 0 || f.batch == 0) return;
  constexpr int kSide = ExactSums::kSide;
  const int64_t tiles = int64_t{(f.m + kSide - 1) / kSide} * ((f.n + kSide - 1) / kSide) * f.batch;
  const ExactPlan plan = plan_exact_product(tiles, f.k, int64_t{f.batch} * f.m * f.n, gpu_extent());
  DeviceScratch<int64_t> sums(stream, plan.slices > 1 ? plan.slices * f.batch * f.m * f.n : 0);
  const ExactSlices slices{.length = static_cast<int>(plan.slice),
                           .count = static_cast<int>(plan.slices),
                           .sums = plan.slices > 1 ? sums.data() : nullptr};
  constexpr int kWidest = decltype(f.a)::kAlongK || decltype(f.b)::kAlongK ? 4 : 1;
  launch(stream, name, {.blocks = tiles * plan.slices, .threads = ExactSums::kThreads, .shared = sizeof(ExactShared)},
         f.in_fours() ? exact_tiles<Factors, kWidest> : exact_tiles<Factors, 1>, f, slices);
  if (plan.slices > 1)
    launch(stream, name, {.blocks = blocks_for(int64_t{f.batch} * f.m * f.n)}, add_exact_slices<Factors>, f, slices);
}

}  // namespace elinvar::HWY_NAMESPACE
