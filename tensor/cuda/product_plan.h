#pragma once
// How a product is cut for a GPU: into tiles of C, one per block, and, if these are few or k is long, into slices of k
// that are reduced afterwards. No choice shows in a result: a slice of a portable product is a chunk, a group or all of
// k (NUMERICS.md, rule 8), and sums of exact products are integers (rule E4).
#include <algorithm>
#include <cstdint>
#include <iterator>

#include "tensor/numerics.h"
#include "tensor/quantized.h"

namespace elinvar {

struct ProductTile {
  int rows, cols;
  double speed;  // of a GPU full of such blocks relative to the largest: the loads per multiply-add
  constexpr int threads() const { return rows * cols / 64; }  // each has 8 x 8 elements of C
};
inline constexpr ProductTile kProductTiles[] = {{128, 128, 1.0}, {128, 64, 0.92}, {64, 64, 0.8}};

struct ProductPlan {
  int tile;             // index into kProductTiles
  int64_t slice;        // k of a slice: kChunk, kChunk * kGroup, or all (at most a group)
  int64_t slices;       // of k
  int64_t slices_once;  // slices that are computed and reduced together
};

struct GpuExtent {
  int multiprocessors;
  int64_t scratch;  // bytes that the sums of slices may take
};

// Returns the cheapest plan by a model of a GPU. Each multiprocessor processes its blocks at a speed that depends on
// the tile and on how many warps it has at once; sums of slices are written to memory and read by a second kernel. The
// unit of cost is the time of a multiply-add of one multiprocessor, 1 / (128 * 1.7 GHz) on an H200.
constexpr ProductPlan plan_product(int64_t m, int64_t n, int64_t k, int64_t batch, const GpuExtent& gpu) {
  constexpr double kBytesAtOnce = 20;  // bytes of device memory per unit of time
  constexpr double kLaunch = 500e3;    // cost of the second kernel: some microseconds
  constexpr int64_t kBlockSteps = 32;  // overhead of a block, in steps of k
  constexpr int64_t kMostWarps = 16;   // for which a multiprocessor has registers
  constexpr int64_t kGroupLength = kChunk * kGroup;
  k = std::max<int64_t>(k, 1);
  const int64_t result_bytes = std::max<int64_t>(batch * m * n * 4, 1);
  ProductPlan best{};
  double best_cost = -1.0;
  for (int t = 0; t < static_cast<int>(std::size(kProductTiles)); ++t) {
    const ProductTile& tile = kProductTiles[t];
    const int64_t tiles = batch * ((m + tile.rows - 1) / tile.rows) * ((n + tile.cols - 1) / tile.cols);
    for (const int64_t slice : {k, kGroupLength, kChunk}) {
      if (slice > kGroupLength || (slice != k && slice >= k)) continue;
      const int64_t slices = (k + slice - 1) / slice;
      const int64_t once = std::clamp<int64_t>(gpu.scratch / result_bytes, 1, slices);
      if (once < slices && slice != kGroupLength) continue;  // only sums of groups can be added to what C holds
      const int64_t passes = (slices + once - 1) / once;
      const int64_t blocks_each = (tiles * once + gpu.multiprocessors - 1) / gpu.multiprocessors;
      // A scheduler needs one warp to do anything, and several to be always busy.
      const auto warps = static_cast<double>(std::min(kMostWarps, blocks_each * tile.threads() / 32));
      const double speed = tile.speed * std::min(warps / 4, 1.0) * (warps / (warps + 1.5));
      double cost = static_cast<double>(passes * blocks_each * tile.rows * tile.cols) *
                    static_cast<double>(std::min(slice, k) + kBlockSteps) / speed;
      if (slices > 1)
        cost += static_cast<double>(passes) * kLaunch +
                static_cast<double>(2 * slices + 2 * passes) * static_cast<double>(result_bytes) / kBytesAtOnce;
      if (best_cost >= 0.0 && cost >= best_cost) continue;
      best_cost = cost;
      best = {t, slice, slices, once};
    }
  }
  return best;
}

// Whether a product with B in memory as (n, k), as a linear layer has it, is faster with a copy of B as (k, n), whose
// tiles go to shared memory as they were loaded. An H200 multiplied 4096 x 4096 x 4096 at 42.8 TFLOP/s with B as (n, k)
// and at 45.9 as (k, n): for each multiply-add the difference is 9 % of its time at the peak, the unit of plan_product.
// The copy may cost half of what is saved. With m = 8192 and a B of 768 x 3072 it is predicted to take 8 us and to save
// 60 us of 950; in a product of 1024 it would take longer than it saves. A copy of A as (k, m) would save 4 % at most,
// and A, which has the samples of a batch, is often as large as the result.
constexpr bool copies_transposed(int64_t m, int64_t n, int64_t k, const GpuExtent& gpu) {
  constexpr double kSaved = 0.09;
  constexpr double kBytesAtOnce = 14;  // 3 TB/s
  constexpr double kLaunch = 500e3;
  const auto elements = static_cast<double>(n * k);
  const double saved = kSaved * static_cast<double>(m) * elements / gpu.multiprocessors;
  return saved >= 2 * (8 * elements / kBytesAtOnce + kLaunch);
}

// The tiles of exact products, of side x side elements, and for how many of them a multiprocessor has registers at
// once. tests/ptx/inner_loops.py predicts the clocks that these together take for a pair: large ones are bound by
// tensor cores, small ones by the L2 cache.
struct ExactTile {
  int side, blocks, clocks;
};
inline constexpr ExactTile kExactTiles[] = {{128, 1, 51}, {64, 2, 45}};

constexpr const ExactTile& exact_tile_of(int side) { return kExactTiles[side == 128 ? 0 : 1]; }

// The large tiles that a product may have: none, those of kExactTiles, or those of chunks (cuda/exact_warpgroups.h),
// which are bound by tensor cores, too: 374 TFLOP/s of a product of 4096 were measured on an H200. Chunks are made of
// pairs first.
struct LargeTiles {
  int clocks = 0;  // for a pair; 0 if there are none
  int64_t pairs_to_split = 0;
};
inline constexpr LargeTiles kNoLargeTiles{}, kLargeTilesOfPairs{kExactTiles[0].clocks};
constexpr LargeTiles large_tiles_of_chunks(int64_t pairs_to_split) { return {43, pairs_to_split}; }

// An exact product may be cut anywhere into slices of at most kMostBytePairs.
struct ExactPlan {
  int side;               // of the tiles
  int64_t slice, slices;  // length of a slice in pairs, and their number
};

// Returns the faster plan: k is cut if that gives every multiprocessor as many tiles as it can hold, there is scratch
// for the int64 sums of slices, and a slice has work for a block.
constexpr ExactPlan plan_exact_product(int64_t m, int64_t n, int64_t k, int64_t batch, const LargeTiles& large,
                                       const GpuExtent& gpu) {
  constexpr int64_t kStep = 16, kLeast = 16 * kStep;
  constexpr int64_t kBlockSteps = 32;    // overhead of a block, in steps of k
  constexpr int64_t kLaunch = 5000;      // clocks of the kernel that adds slices
  constexpr int64_t kBytesAtOnce = 20;   // bytes of device memory per multiprocessor and clock: 4.8 TB/s of an H200
  constexpr int64_t kBytesOfSplit = 13;  // the same where pairs become chunks: 3 TB/s, as measured
  k = std::max<int64_t>(k, 1);
  const int64_t results = std::max<int64_t>(batch * m * n, 1);
  ExactPlan best{};
  int64_t least_clocks = INT64_MAX;
  for (const ExactTile& tile : kExactTiles) {
    const bool is_large = tile.side == 128;
    if (is_large && large.clocks == 0) continue;
    const int64_t tiles = batch * ((m + tile.side - 1) / tile.side) * ((n + tile.side - 1) / tile.side),
                  places = int64_t{tile.blocks} * gpu.multiprocessors,
                  needed = (k + kMostBytePairs - 1) / kMostBytePairs,
                  wanted = std::min({places / std::max<int64_t>(tiles, 1), k / kLeast, gpu.scratch / (8 * results)}),
                  count = std::max({needed, wanted, int64_t{1}}), length = (k + count - 1) / count,
                  slice = (length + kStep - 1) / kStep * kStep, slices = (k + slice - 1) / slice;
    int64_t clocks = (tiles * slices + places - 1) / places * (std::min(slice, k) + kBlockSteps) *
                     (is_large ? large.clocks : tile.clocks);
    if (is_large) clocks += 8 * large.pairs_to_split / (kBytesOfSplit * gpu.multiprocessors);
    if (slices > 1) clocks += kLaunch + 16 * slices * results / (kBytesAtOnce * gpu.multiprocessors);
    if (clocks >= least_clocks) continue;
    least_clocks = clocks;
    best = {tile.side, slice, slices};
  }
  return best;
}

}  // namespace elinvar
