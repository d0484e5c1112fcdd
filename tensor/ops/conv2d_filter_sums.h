#pragma once
// The last steps of filter gradients of convolutions: sums over groups of positions, and transposing filters.
#include <algorithm>
#include <cstdint>

#include "tensor/stream.h"

namespace elinvar {

// y[i] = sum over groups, from left to right, of sums[group * n + i].
template <class T>
void add_groups(CpuStream& stream, const T* sums, int64_t groups, int64_t n, T* y) {
  stream.parallel_for(n, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T sum = T{0};
      for (int64_t group = 0; group < groups; ++group) sum = sum + sums[group * n + i];
      y[i] = sum;
    }
  });
}

// y (columns, rows) from x (rows, columns), a few rows at a time, so that their lines stay in the first-level cache.
template <class T>
void transpose(CpuStream& stream, const T* x, int64_t rows, int64_t columns, T* y) {
  constexpr int64_t kRows = 16;
  stream.parallel_for(columns, 64, [&](int64_t begin, int64_t end) {
    for (int64_t r0 = 0; r0 < rows; r0 += kRows)
      for (int64_t c = begin; c < end; ++c)
        for (int64_t r = r0; r < std::min(rows, r0 + kRows); ++r) y[c * rows + r] = x[r * columns + c];
  });
}

}  // namespace elinvar
