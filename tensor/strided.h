#pragma once
// Walks strided operands row by row: dimensions that are adjacent in memory for every operand are merged, and the last
// one becomes the inner loop, which a kernel runs with plain strides.
#include <array>

#include "tensor/shape.h"

namespace elinvar {

template <int kOperands>
struct StridedRows {
  Shape shape;                           // merged; the last extent is the inner loop
  std::array<Shape, kOperands> strides;  // of each operand, merged the same way

  StridedRows(const Shape& full, const std::array<Shape, kOperands>& full_strides) {
    for (int d = 0; d < full.ndim(); ++d) {
      if (full[d] == 1) continue;
      bool merge = shape.ndim() > 0;
      for (int k = 0; merge && k < kOperands; ++k) merge = strides[k].back() == full_strides[k][d] * full[d];
      if (merge) {
        shape[shape.ndim() - 1] *= full[d];
        for (int k = 0; k < kOperands; ++k) strides[k][shape.ndim() - 1] = full_strides[k][d];
      } else {
        shape.push_back(full[d]);
        for (int k = 0; k < kOperands; ++k) strides[k].push_back(full_strides[k][d]);
      }
    }
    if (shape.ndim() == 0) {
      shape.push_back(1);
      for (int k = 0; k < kOperands; ++k) strides[k].push_back(1);
    }
  }

  int64_t row_length() const { return shape.back(); }
  int64_t rows() const { return shape.back() == 0 ? 0 : shape.numel() / shape.back(); }
  int64_t inner_stride(int k) const { return strides[static_cast<size_t>(k)].back(); }

  // Element offsets of each operand at the start of a row.
  std::array<int64_t, kOperands> offsets(int64_t row) const {
    std::array<int64_t, kOperands> at{};
    for (int d = shape.ndim() - 2; d >= 0; --d) {
      const int64_t i = row % shape[d];
      row /= shape[d];
      for (int k = 0; k < kOperands; ++k) at[static_cast<size_t>(k)] += i * strides[static_cast<size_t>(k)][d];
    }
    return at;
  }
};

}  // namespace elinvar
