#pragma once
// Exact products by products of warpgroups (warpgroup.h), on GPUs that have them: four products of the bytes h and l of
// chunks (chunks.h) make the one of 14 bits. Tiles, slices and results are those of exact_product.h.
//
// Six tiles of each factor are in shared memory. A tile is written again after all threads have waited for the products
// that read it, those of two steps before, so copies are four steps ahead.
#include <optional>

#include "tensor/cuda/chunks.h"
#include "tensor/cuda/exact_product.h"

namespace elinvar::HWY_NAMESPACE {

struct ChunkPlanes {
  int64_t a, b;  // chunks from the first plane to the second
};

constexpr int kWarpgroupStages = 6;
constexpr uint32_t kStageBytes = 4 * kTileBytes;  // both planes of both factors
constexpr int kExactThreads = 2 * kWarpgroupThreads;

#ifdef ELINVAR_WARPGROUPS

// The three sums of a tile of 128 x 128 by two warpgroups.
class WarpgroupExactSums {
 public:
  static constexpr int kRows = 2, kColumns = 32;

  __device__ WarpgroupExactSums() {
#pragma unroll
    for (int e = 0; e < 64; ++e) high_.at[e] = middle_.at[e] = low_.at[e] = 0;
  }

  // Begins the products of the tiles at these bytes.
  __device__ void add(uint32_t a, uint32_t b) {
    a += threadIdx.x / kWarpgroupThreads * (kWarpgroupRows * kChunkBytes);
    begin_products();
#pragma unroll
    for (uint32_t k = 0; k < kTileBytes; k += kChunksOfProduct * kNextChunk) {
      begin_product(high_, a + k, b + k);
      begin_product(middle_, a + k, b + kTileBytes + k);
      begin_product(low_, a + kTileBytes + k, b + kTileBytes + k);
      begin_product(middle_, a + kTileBytes + k, b + k);
    }
    end_products();
  }
  __device__ void end() {
    await_products<0>();
    take_sums(high_), take_sums(middle_), take_sums(low_);
  }

  __device__ static int row(int r) { return static_cast<int>(threadIdx.x) / 32 * 16 + 8 * r + lane_group(); }
  __device__ static int column(int c) { return c / 2 * 8 + 2 * lane_in_group() + c % 2; }
  __device__ int64_t sum(int r, int c) const {
    const int at = place(r, c);
    return int64_t{high_.at[at]} * (1 << 14) + int64_t{middle_.at[at]} * (1 << 7) + low_.at[at];
  }
  // The sum as float32, of at most 2 kMostBytePairs terms, which is below 2^41: a multiple of 2^17 that float32 holds,
  // plus the rest.
  static_assert(2 * kMostBytePairs <= 1 << 15);
  __device__ float rounded(int r, int c) const {
    const int at = place(r, c);
    const int32_t high = high_.at[at], middle = middle_.at[at], low = low_.at[at];
    const int32_t top = high + ((middle + (low >> 7)) >> 7);
    const uint32_t rest =
        (static_cast<uint32_t>(high) << 14) + (static_cast<uint32_t>(middle) << 7) + static_cast<uint32_t>(low);
    return std::fma(static_cast<float>(top >> 3), 131072.0f, static_cast<float>(static_cast<int32_t>(rest & 0x1ffff)));
  }

 private:
  __device__ static int place(int r, int c) { return c / 2 * 4 + r * 2 + c % 2; }
  WarpgroupSums high_, middle_, low_;
};

#endif

// k of the factors, and of slices, counts chunks.
template <class Factors>
__global__ void __launch_bounds__(kExactThreads, 1)
    exact_warpgroups(const __grid_constant__ Factors f, const ChunkPlanes planes, const ExactSlices slices) {
#ifdef ELINVAR_WARPGROUPS
  __shared__ TileOfProduct tile;  // for after the loop
  const auto [i_first, j_first, batch, slice] = TileOfProduct::of_block<kTileLines, kTileLines>(f, 0);
  int k = slice * slices.length;  // of the last copy
  if (threadIdx.x == 0) tile = {i_first, j_first, batch, slice};
  const int k_end = f.k - k < slices.length ? f.k : k + slices.length;
  const auto skip = f.skip(batch);
  ChunkCopier<decltype(f.a), kExactThreads> a(f.a, planes.a, batch, i_first, f.m, k);
  ChunkCopier<decltype(f.b), kExactThreads> b(f.b, planes.b, batch, j_first, f.n, k);
  WarpgroupExactSums sums;
  int next = skip.next(k), running = 0;  // the next step to copy; steps that are copied and not multiplied
  // Copies a step, if there is one, to the stage at byte `to`.
  const auto copy = [&](uint32_t to) {
    if (next < k_end) {
      a.copy(to, next - k, k_end - next);
      b.copy(to + 2 * kTileBytes, next - k, k_end - next);
      k = next, next = skip.next(k + kChunkSteps);
      ++running;
    }
    end_copies();
  };
  constexpr uint32_t kEnd = kWarpgroupStages * kStageBytes;
  uint32_t at = 0, to = (kWarpgroupStages - 2) * kStageBytes;
#pragma unroll
  for (uint32_t stage = 0; stage < (kWarpgroupStages - 2) * kStageBytes; stage += kStageBytes) copy(stage);
  for (; running > 0; --running) {
    await_copy_groups<kWarpgroupStages - 3>();
    show_to_products();
    __syncthreads();  // all threads have waited for the products of two steps before
    sums.add(at, at + 2 * kTileBytes);
    copy(to);
    await_products<1>();
    at = at + kStageBytes == kEnd ? 0 : at + kStageBytes;
    to = to + kStageBytes == kEnd ? 0 : to + kStageBytes;
  }
  sums.end();
  await_copies();
  write_results<kTileLines>(f, slices, tile, sums);
#endif
}

// Whether the device has products of warpgroups and the program has code for them: only then has the kernel a body, and
// memory of its own.
template <class Factors>
bool have_warpgroups() {
#ifdef __CUDACC__
  static const bool have = [] {
    cudaFuncAttributes attributes;
    check_launch("attributes of a kernel", cudaFuncGetAttributes(&attributes, exact_warpgroups<Factors>));
    return attributes.sharedSizeBytes > 0;
  }();
  return have;
#else
  return true;
#endif
}

// The plan of a product of pairs, of which some become chunks, if warpgroups are there and faster.
template <class FactorsOfChunks, class Factors>
std::optional<ExactPlan> plan_of_chunks(const Factors& pairs, int64_t pairs_to_split) {
  if (pairs.m == 0 || pairs.n == 0 || pairs.k == 0 || pairs.batch == 0 || !have_warpgroups<FactorsOfChunks>())
    return {};
  const ExactPlan plan =
      plan_exact_product(pairs.m, pairs.n, pairs.k, pairs.batch, large_tiles_of_chunks(pairs_to_split), gpu_extent());
  if (plan.side != kTileLines) return {};
  return plan;
}

// f is the product of `pairs` with the chunks of a and b as its factors.
template <class Factors, class OfPairs>
void multiply_chunks(Gpu& stream, const char* name, const Factors& f, const OfPairs& pairs, const ExactPlan& plan,
                     const Chunks& a, const Chunks& b) {
  const int64_t results = int64_t{f.batch} * f.m * f.n;
  DeviceScratch<int64_t> sums(stream, plan.slices > 1 ? plan.slices * results : 0);
  const ExactSlices slices{.length = static_cast<int>(plan.slice / kPairsOfChunk),
                           .count = static_cast<int>(plan.slices),
                           .sums = plan.slices > 1 ? sums.data() : nullptr};
  const int64_t tiles = int64_t{(f.m + kTileLines - 1) / kTileLines} * ((f.n + kTileLines - 1) / kTileLines) * f.batch;
  launch(stream, name,
         {.blocks = tiles * plan.slices, .threads = kExactThreads, .shared = kWarpgroupStages * kStageBytes},
         exact_warpgroups<Factors>, f, ChunkPlanes{a.plane(), b.plane()}, slices);
  if (plan.slices > 1) launch_add_exact_slices(stream, name, pairs, slices);
}

}  // namespace elinvar::HWY_NAMESPACE
