#pragma once
// The tile of a block, for the kernels of portable and of exact attention.
#include "tensor/cuda/kernel.h"
#include "tensor/numerics.h"
#include "tensor/ops/attention.h"

namespace elinvar::HWY_NAMESPACE {

constexpr int kAttentionSide = 64;  // of a tile: rows, and also columns
static_assert(kAttentionSide == kRowLanes && kRowSegment % kAttentionSide == 0);
constexpr int kMostSegments = 16;  // per row of scores
constexpr int64_t kMostKeys = kMostSegments * kRowSegment;

inline void check_keys(const AttentionShape& s) {
  if (s.tk > kMostKeys)
    throw UsageError("[attention] a GPU takes at most " + std::to_string(kMostKeys) + " keys, got " +
                     std::to_string(s.tk) + "; use --device cpu, or a shorter data.context");
}

// The tile of `side` rows, the head and the panel of columns of a block. With a causal mask the last queries, and the
// first keys, have the most pairs. Blocks start in the order of their indices, so these tiles of all heads come first:
// otherwise, a GPU would wait for a few of them at the end. Heads follow each other in groups, so that the L2 cache
// holds what the blocks of a group read several times.
enum class TilesFrom { first, last };
constexpr int kHeadGroup = 128;
struct AttentionPlace {
  AttentionPlace() = default;
  int64_t b, h;
  int first, column;
  __device__ AttentionPlace(int64_t batch, int64_t heads, int rows, int size, TilesFrom order,
                            int side = kAttentionSide) {
    const int tiles = (rows + side - 1) / side, panels = (size + kAttentionSide - 1) / kAttentionSide;
    const int block = static_cast<int>(blockIdx.x) / panels, first_head = block / (kHeadGroup * tiles) * kHeadGroup;
    const int left = static_cast<int>(batch * heads) - first_head, group = left < kHeadGroup ? left : kHeadGroup;
    const int in_group = block - first_head * tiles, tile = in_group / group, head = first_head + in_group % group;
    column = static_cast<int>(blockIdx.x) % panels * kAttentionSide;
    first = (order == TilesFrom::first ? tile : tiles - 1 - tile) * side;
    h = head % static_cast<int>(heads);
    b = head / static_cast<int>(heads);
  }
};
inline int64_t blocks_of(int64_t heads, int64_t rows, int64_t size, int64_t side = kAttentionSide) {
  return heads * ((rows + side - 1) / side) * ((size + kAttentionSide - 1) / kAttentionSide);
}

}  // namespace elinvar::HWY_NAMESPACE
