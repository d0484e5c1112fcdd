#pragma once
// The sizes of the tasks into which the kernels of leaf_tree-inl.h cut a matrix (rows, channels). No bit depends on
// them.
#include <cstdint>

#include "tensor/numerics.h"

namespace elinvar {

inline constexpr int64_t kBlockLeaves = 8;                         // leaves whose tree one task reduces
inline constexpr int64_t kTreeBlock = kBlockLeaves * kColumnLeaf;  // their rows
inline constexpr int64_t kMostChannels = 1024;                     // of a task: a leaf of them stays in the cache
inline constexpr int64_t kPiece = 4;                               // rows of a wide chunk that are swept at once
inline constexpr int64_t kWideRow = 256;                           // channels of a row that is worth its own sweep
inline constexpr int64_t kSideBySide = 4;                          // chains that run side by side

inline int64_t tree_blocks(int64_t rows) { return (rows + kTreeBlock - 1) / kTreeBlock; }

// The channels of a task. Whole rows are read fastest, so rows are cut only if they are long, or to keep threads busy.
inline int64_t channel_chunk(int64_t rows, int threads) {
  return tree_blocks(rows) >= 2 * threads ? kMostChannels : kMostChannels / 2;
}
inline int64_t tree_tasks(int64_t rows, int64_t channels, int64_t chunk) {
  return tree_blocks(rows) * ((channels + chunk - 1) / chunk);
}

}  // namespace elinvar
