#pragma once
// The product under exact matmul and exact convolutions on a GPU: C[i, j] sums A[i, k] B[k, j] over pairs k as integers
// (NUMERICS.md, "Exact numerics"), on tensor cores for integers of 8 bits. Four products of the bytes h and l of
// each factor make the one of 14 bits. A sum of integers has one value, so no tile, slice or order shows in a result.
//
// A block computes a tile of C over a slice of k, which is short enough for sums in int32. Where k has several slices,
// their sums go to scratch memory as int64, and a second kernel adds them up.
//
// A Factors type is that of product.h, with operands of pairs, and
//   int32_t row_exponent(int batch, int i) const;      // of E4, row and column of C
//   int32_t column_exponent(int batch, int j) const;
#include <limits>

#include "tensor/cuda/pair_tiles.h"
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

// The three sums of a tile of kSide x kWide by 2 kSide threads. A warp has kSide / 2 rows and kWide / (kSide / 32)
// columns, as tiles of the instruction. The factors of all of its columns are in registers, and those of 16 rows at a
// time.
template <int kSide, int kWide, bool kAlongKOfA, bool kAlongKOfB>
class ExactSums {
 public:
  static constexpr int kDown = kSide / 32, kAcross = kWide / (kSide / 4);
  using A = PairTile<kSide, kAlongKOfA>;
  using B = PairTile<kWide, kAlongKOfB>;

  // Adds the product of the tiles that begin at these words.
  __device__ void add(const uint32_t* a, const uint32_t* b) {
    a += A::place_of_lane(row());
    b += B::place_of_lane(col());
    BytesB b_high[kAcross], b_low[kAcross];
#pragma unroll
    for (int n = 0; n < kAcross; ++n) {
      const BytesOfFour x = B::read(b + 8 * n * B::kLine);
      b_high[n] = {{x.high[0], x.high[1]}};
      b_low[n] = {{x.low[0], x.low[1]}};
    }
#pragma unroll
    for (int m = 0; m < kDown; ++m) {
      const BytesOfFour x = A::read(a + 16 * m * A::kLine), y = A::read(a + (16 * m + 8) * A::kLine);
      const BytesA a_high{{x.high[0], y.high[0], x.high[1], y.high[1]}},
          a_low{{x.low[0], y.low[0], x.low[1], y.low[1]}};
#pragma unroll
      for (int n = 0; n < kAcross; ++n) {
        multiply_add<true, true>(high_[m][n], a_high, b_high[n]);
        multiply_add<true, false>(middle_[m][n], a_high, b_low[n]);
      }
#pragma unroll
      for (int n = 0; n < kAcross; ++n) {
        multiply_add<false, true>(middle_[m][n], a_low, b_high[n]);
        multiply_add<false, false>(low_[m][n], a_low, b_low[n]);
      }
    }
  }

  // The row and the column of a thread's sum (r, c) in the tile.
  static constexpr int kRows = 2 * kDown, kColumns = 2 * kAcross;
  __device__ static int row(int r) { return row() + 16 * (r / 2) + 8 * (r % 2) + lane_group(); }
  __device__ static int column(int c) { return col() + 8 * (c / 2) + 2 * lane_in_group() + c % 2; }

  // A sum of at most kMostTerms: that of the products of lower bytes is below 2^32.
  static constexpr int64_t kMostTerms = 66000;
  __device__ int64_t sum(int r, int c) const {
    return int64_t{at(high_, r, c)} * (1 << 16) + int64_t{at(middle_, r, c)} * (1 << 8) +
           static_cast<uint32_t>(at(low_, r, c));
  }
  __device__ float rounded(int r, int c) const { return static_cast<float>(sum(r, c)); }
  // A sum of at most kShortSum terms, rounded to float32: a multiple of 2^12 that float32 holds, plus the rest.
  static constexpr int64_t kShortSum = 512;
  __device__ float short_sum(int r, int c) const {
    const int32_t low = at(low_, r, c), middle = at(middle_, r, c) + (low >> 8);
    return std::fma(static_cast<float>(at(high_, r, c) * (1 << 4) + (middle >> 4)), 4096.0f,
                    static_cast<float>((middle & 15) << 8 | (low & 255)));
  }

 private:
  __device__ static int row() { return static_cast<int>(threadIdx.x) / kSide * (kSide / 2); }
  __device__ static int col() { return static_cast<int>(threadIdx.x) % kSide / 32 * (8 * kAcross); }
  __device__ static int32_t at(const IntegerSums (&sums)[kDown][kAcross], int r, int c) {
    return sums[r / 2][c / 2].at[r % 2 * 2 + c % 2];
  }

  IntegerSums high_[kDown][kAcross], middle_[kDown][kAcross], low_[kDown][kAcross];
};

// Shared memory of a block: words of two tiles of each factor, and after them the rounded sums, which are written to C
// by rows.
template <int kSide>
union ExactShared {
  uint32_t words[2][2][PairTile<kSide, false>::kWords];
  struct Results {
    float at[kSide][kSide + 8];  // padded, so that there are no bank conflicts
    int32_t row_exponents[kSide];
  } results;
};

// Writes the sums of a tile, which 2 kSide threads call when the block's shared memory is free.
template <int kSide, class Factors, class Sums>
__device__ void write_results(const Factors& f, const ExactSlices& slices, const TileOfProduct& tile,
                              const Sums& sums) {
  auto& results = *dynamic_shared<typename ExactShared<kSide>::Results>();
  const int thread = static_cast<int>(threadIdx.x), j = tile.j + thread % kSide;
  int64_t* const partial =
      slices.sums ? slices.sums + (int64_t{tile.slice} * f.batch + tile.batch) * f.m * f.n : nullptr;
#pragma unroll
  for (int r = 0; r < Sums::kRows; ++r)
#pragma unroll
    for (int c = 0; c < Sums::kColumns; ++c) {
      const int row = sums.row(r), column = sums.column(c);
      if (!partial) results.at[row][column] = sums.rounded(r, c);
      else if (tile.i + row < f.m && tile.j + column < f.n)
        partial[int64_t{tile.i + row} * f.n + (tile.j + column)] = sums.sum(r, c);
    }
  if (partial) return;
  if (thread < kSide && tile.i + thread < f.m)
    results.row_exponents[thread] = f.row_exponent(tile.batch, tile.i + thread);
  __syncthreads();
  if (j >= f.n) return;
  const int32_t exponent = f.column_exponent(tile.batch, j);
  const float* const bias = f.bias(tile.batch);
  const float added = bias ? bias[j] : 0.0f;
#pragma unroll 1
  for (int row = thread / kSide; row < kSide && tile.i + row < f.m; row += 2) {
    float* const c = f.row(tile.batch, tile.i + row);
    const float x = scaled(results.at[row][thread % kSide], results.row_exponents[row] + exponent);
    if (c) c[j] = bias ? x + added : x;
  }
}

template <class Factors, int kSide, int kWidth>
__global__ void __launch_bounds__(2 * kSide, exact_tile_of(kSide).blocks)
    exact_tiles(const __grid_constant__ Factors f, const ExactSlices slices) {
  using A = decltype(f.a);
  using B = decltype(f.b);
  constexpr int kWords = PairTile<kSide, false>::kWords;  // of either layout at most
  // The loop needs all registers, so these are in memory.
  __shared__ TileOfProduct tile;
  __shared__ decltype(f.skip(0)) skip;
  __shared__ int k_end;

  const auto [i_first, j_first, batch_of_terms, slice] = TileOfProduct::of_block<kSide, kSide>(f, 0);
  int k = slice * slices.length;
  if (threadIdx.x == 0) {
    tile = {i_first, j_first, batch_of_terms, slice};
    skip = f.skip(batch_of_terms);
    k_end = f.k - k < slices.length ? f.k : k + slices.length;
  }
  __syncthreads();
  ExactSums<kSide, kSide, A::kAlongK, B::kAlongK> sums;
  PairCopier<A, kSide, kWidth> a(f.a, batch_of_terms, i_first, f.m, k);
  PairCopier<B, kSide, kWidth> b(f.b, batch_of_terms, j_first, f.n, k);
  const int first = skip.next(k);
  a.copy(0, first - k, k_end - first);
  b.copy(kWords, first - k, k_end - first);
  k = first;
  for (int at = 0; k < k_end; at ^= 2 * kWords) {
    const int next = skip.next(k + kPairSteps);
    await_copies();  // the tiles at `at` are complete, and the others are no longer read
    a.copy(at ^ 2 * kWords, next - k, k_end - next);
    b.copy((at ^ 2 * kWords) + kWords, next - k, k_end - next);
    const uint32_t* const words = dynamic_shared<uint32_t>() + at;
    sums.add(words, words + kWords);
    k = next;
  }

  await_copies();
  write_results<kSide>(f, slices, tile, sums);
}

template <class Result>
__global__ void add_exact_slices(const __grid_constant__ Result f, const ExactSlices slices) {
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
void launch_add_exact_slices(Gpu& stream, const char* name, const Factors& f, const ExactSlices& slices) {
  using Result = typename Factors::Result;
  launch(stream, name, {.blocks = blocks_for(int64_t{f.batch} * f.m * f.n)}, add_exact_slices<Result>,
         static_cast<const Result&>(f), slices);
}

// From compute capability 10.0 on, ptxas makes several instructions of an mma.m16n8k32, whose results spill.
inline bool have_registers_for_large_tiles() {
  int major = 9;
#ifdef __CUDACC__
  int device = 0;
  check_launch("compute capability", cudaGetDevice(&device));
  check_launch("compute capability", cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
#endif
  return major < 10;
}

template <int kSide, int kWidth, class Factors>
void multiply_exactly(Gpu& stream, const char* name, const Factors& f, const ExactPlan& plan, const ExactSlices& to) {
  const int64_t tiles = int64_t{(f.m + kSide - 1) / kSide} * ((f.n + kSide - 1) / kSide) * f.batch;
  launch(stream, name, {.blocks = tiles * plan.slices, .threads = 2 * kSide, .shared = sizeof(ExactShared<kSide>)},
         exact_tiles<Factors, kSide, kWidth>, f, to);
}

template <class Factors>
void multiply_exactly(Gpu& stream, const char* name, const Factors& f) {
  if (f.m == 0 || f.n == 0 || f.batch == 0) return;
  const bool fours = f.in_fours();
  const ExactPlan plan =
      plan_exact_product(f.m, f.n, f.k, f.batch,
                         fours && have_registers_for_large_tiles() ? kLargeTilesOfPairs : kNoLargeTiles, gpu_extent());
  const int64_t results = int64_t{f.batch} * f.m * f.n;
  DeviceScratch<int64_t> sums(stream, plan.slices > 1 ? plan.slices * results : 0);
  const ExactSlices slices{.length = static_cast<int>(plan.slice),
                           .count = static_cast<int>(plan.slices),
                           .sums = plan.slices > 1 ? sums.data() : nullptr};
  if (plan.side == 128) multiply_exactly<128, 4>(stream, name, f, plan, slices);
  else if (fours) multiply_exactly<64, 4>(stream, name, f, plan, slices);
  else multiply_exactly<64, 1>(stream, name, f, plan, slices);
  if (plan.slices > 1) launch_add_exact_slices(stream, name, f, slices);
}

}  // namespace elinvar::HWY_NAMESPACE
