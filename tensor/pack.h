#pragma once
// Rearranging operands for the tiles (tensor/tile.h). Packing moves values; it never changes one.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tensor/tile.h"

namespace elinvar {

// Rows side by side: out[k * step + r] = rows[r][k] for r < count, k < k_count.
void interleave(const float* const* rows, int64_t count, int64_t k_count, float* out, int64_t step);
void interleave(const double* const* rows, int64_t count, int64_t k_count, double* out, int64_t step);

// One strip of B, `k` rows by `cols` columns, element (k, j) at src[k * k_step + j * j_step], one of the steps 1, into
// rows of `width` >= cols elements. The columns beyond hold zeros or copies of columns: ordinary numbers.
template <class T>
void pack_strip(const T* src, int64_t k_step, int64_t j_step, int64_t k_count, int64_t cols, int64_t width, T* out) {
  if (j_step == 1) {
    for (int64_t k = 0; k < k_count; ++k, out += width) {
      std::copy_n(src + k * k_step, cols, out);
      std::fill(out + cols, out + width, T{0});
    }
    return;
  }
  // Blocks of rows stay in the first-level cache while columns fill them, a few at a time.
  constexpr int64_t kBlock = 64, kColumns = 8;
  for (int64_t k0 = 0; k0 < k_count; k0 += kBlock) {
    for (int64_t j = 0; j < width; j += kColumns) {
      const int64_t count = std::min(kColumns, width - j);
      const T* columns[kColumns];
      for (int64_t c = 0; c < count; ++c) columns[c] = src + std::min(j + c, cols - 1) * j_step + k0;
      interleave(columns, count, std::min(kBlock, k_count - k0), out + k0 * width + j, width);
    }
  }
}

// A panel whose rows all exist, their number known to the compiler.
template <int kRows, class T>
void pack_full_panel(const T* src, int64_t k_step, int64_t k_count, T* out) {
  for (int64_t k = 0; k < k_count; ++k, src += k_step, out += kRows) std::memcpy(out, src, kRows * sizeof(T));
}

// A panel of A: `rows` <= tile_rows rows by k_count, element (i, k) at src[i + k * k_step], into [k][tile_rows] with
// zeros for the rows that do not exist.
template <class T>
void pack_panel(const T* src, int64_t k_step, int64_t k_count, int rows, int tile_rows, T* out) {
  if (rows == 8 && tile_rows == 8) return pack_full_panel<8>(src, k_step, k_count, out);
  if (rows == 4 && tile_rows == 4) return pack_full_panel<4>(src, k_step, k_count, out);
  for (int64_t k = 0; k < k_count; ++k, src += k_step, out += tile_rows) {
    for (int i = 0; i < rows; ++i) out[i] = src[i];
    for (int i = rows; i < tile_rows; ++i) out[i] = T{0};
  }
}

}  // namespace elinvar
