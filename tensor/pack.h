#pragma once
// Rearranges operands for the tiles (tensor/tile.h). Packing moves values; it never changes one.
#include <hwy/cache_control.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tensor/tile.h"

namespace elinvar {

// Interleaves rows: out[k * step + r] = rows[r][k] for r < count, k < k_count.
void interleave(const float* const* rows, int64_t count, int64_t k_count, float* out, int64_t step);
void interleave(const double* const* rows, int64_t count, int64_t k_count, double* out, int64_t step);
void interleave(const Pair* const* rows, int64_t count, int64_t k_count, Pair* out, int64_t step);

// Packs one strip of B, k_count rows by `cols` columns, into rows of `width` >= cols elements. Element (k, j) is at
// src[k * k_step + j * j_step]; one of the steps is 1. Columns from `cols` on hold zeros or copies of columns: ordinary
// numbers.
template <class T>
void pack_strip(const T* src, int64_t k_step, int64_t j_step, int64_t k_count, int64_t cols, int64_t width, T* out) {
  constexpr int64_t kPiece = 8;  // in a few instructions: strips are too narrow for a call of memcpy
  if (j_step == 1) {
    for (int64_t k = 0; k < k_count; ++k, src += k_step, out += width) {
      int64_t j = 0;
      for (; j + kPiece <= cols; j += kPiece) std::memcpy(out + j, src + j, kPiece * sizeof(T));
      for (; j < cols; ++j) out[j] = src[j];
      for (; j < width; ++j) out[j] = T{0};
    }
    return;
  }
  // Blocks of rows stay in the first-level cache while columns fill them, a few at a time. The next ones are
  // prefetched, because processors do not foresee reads that are far apart.
  constexpr int64_t kBlock = 64, kColumns = 8, kLine = 64 / sizeof(T), kPrefetched = 2 * kLine;
  for (int64_t k0 = 0; k0 < k_count; k0 += kBlock) {
    for (int64_t j = 0; j < width; j += kColumns) {
      const int64_t count = std::min(kColumns, width - j);
      const T* columns[kColumns];
      for (int64_t c = 0; c < count; ++c) {
        columns[c] = src + std::min(j + c, cols - 1) * j_step + k0;
        for (int64_t k = 0; k < kPrefetched; k += kLine) hwy::Prefetch(columns[c] + kColumns * j_step + k);
      }
      interleave(columns, count, std::min(kBlock, k_count - k0), out + k0 * width + j, width);
    }
  }
}

// Packs panels of A, panel p at out + p * panel_step, [k][tile_rows] each: `rows` rows by k_count, element (i, k) at
// src[i + k * k_step]. Panels are filled together, in memory order of the source; a panel_step that is no power of two
// keeps them out of each other's cache sets. Missing rows become zeros.
template <int kRows, class T>
void pack_panels_of(const T* src, int64_t k_step, int64_t k_count, int64_t rows, T* out, int64_t panel_step) {
  const int64_t full = rows / kRows, rest = rows % kRows;
  for (int64_t k = 0; k < k_count; ++k, src += k_step, out += kRows) {
    for (int64_t p = 0; p < full; ++p) std::memcpy(out + p * panel_step, src + p * kRows, kRows * sizeof(T));
    if (rest == 0) continue;
    std::copy_n(src + full * kRows, rest, out + full * panel_step);
    std::fill_n(out + full * panel_step + rest, kRows - rest, T{0});
  }
}

template <class T>
void pack_panels(const T* src, int64_t k_step, int64_t k_count, int64_t rows, int tile_rows, T* out,
                 int64_t panel_step) {
  if (tile_rows == 8) pack_panels_of<8>(src, k_step, k_count, rows, out, panel_step);
  else if (tile_rows == 6) pack_panels_of<6>(src, k_step, k_count, rows, out, panel_step);
  else pack_panels_of<kMostTileRows>(src, k_step, k_count, rows, out, panel_step);  // tiles of bytes
}

// The step from one panel of a chunk to the next.
inline int64_t panel_step(TileExtent extent, int64_t chunk = kChunk) { return chunk * extent.rows + 16; }

// Packs a panel of A: `rows` <= tile_rows rows by k_count, element (i, k) at src[i + k * k_step].
template <class T>
void pack_panel(const T* src, int64_t k_step, int64_t k_count, int rows, int tile_rows, T* out) {
  pack_panels(src, k_step, k_count, rows, tile_rows, out, 0);
}

}  // namespace elinvar
