#pragma once
// How a product is cut for a GPU: into tiles of C, one per block, and, if these are few or k is long, into slices of k
// that are reduced afterwards. No choice shows in a result (NUMERICS.md, rule 8): a slice is a chunk, a group or all of
// k.
#include <algorithm>
#include <cstdint>
#include <iterator>

#include "tensor/numerics.h"

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

// An exact product (tensor/quantized.h) may be cut anywhere, but a slice has at most so many pairs that sums of
// products of 8 bits, each of which is at most 2^14, stay in int32.
inline constexpr int64_t kMostExactPairs = (1 << 16) - 16;
static_assert(2 * kMostExactPairs << 14 <= INT32_MAX);

struct ExactPlan {
  int64_t slice, slices;  // length of a slice in pairs, and their number
};

// Cuts k of so many tiles that every multiprocessor has two blocks, if there is scratch for the int64 sums of `results`
// elements and a slice has work for a block.
constexpr ExactPlan plan_exact_product(int64_t tiles, int64_t k, int64_t results, const GpuExtent& gpu) {
  constexpr int64_t kStep = 16, kLeast = 16 * kStep;
  k = std::max<int64_t>(k, 1);
  const int64_t least = (k + kMostExactPairs - 1) / kMostExactPairs;
  const int64_t wanted = std::min({2 * gpu.multiprocessors / std::max<int64_t>(tiles, 1), k / kLeast,
                                   gpu.scratch / (8 * std::max<int64_t>(results, 1))});
  const int64_t slices = std::max({least, wanted, int64_t{1}}), length = (k + slices - 1) / slices,
                slice = (length + kStep - 1) / kStep * kStep;
  return {slice, (k + slice - 1) / slice};
}

}  // namespace elinvar
