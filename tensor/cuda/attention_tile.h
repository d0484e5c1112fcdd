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

// The tile of rows, the head and the panel of columns of a block.
struct AttentionPlace {
  AttentionPlace() = default;
  int64_t b, h;
  int first, column;
  __device__ AttentionPlace(int64_t heads, int rows, int size) {
    const int tiles = (rows + kAttentionSide - 1) / kAttentionSide,
              panels = (size + kAttentionSide - 1) / kAttentionSide;
    const int block = static_cast<int>(blockIdx.x), tile = block / panels;
    column = block % panels * kAttentionSide;
    first = tile % tiles * kAttentionSide;
    h = tile / tiles % heads;
    b = tile / tiles / heads;
  }
};
inline int64_t blocks_of(int64_t heads, int64_t rows, int64_t size) {
  return heads * ((rows + kAttentionSide - 1) / kAttentionSide) * ((size + kAttentionSide - 1) / kAttentionSide);
}

}  // namespace elinvar::HWY_NAMESPACE
