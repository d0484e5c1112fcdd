#pragma once
// Finds the address of an element of a strided operand from its index in logical order.
#include "tensor/cuda/kernel.h"
#include "tensor/shape.h"

namespace elinvar {

// Extents and strides of kOperands operands over one shape, for a kernel's arguments.
template <int kOperands>
struct StridedElements {
  int ndim = 0;
  int64_t extents[Shape::kMaxDims] = {};
  int64_t strides[kOperands][Shape::kMaxDims] = {};

  // Takes dimensions that are already merged (tensor/strided.h).
  template <class Rows>
  explicit StridedElements(const Rows& rows) : ndim(rows.shape.ndim()) {
    for (int d = 0; d < ndim; ++d) {
      extents[d] = rows.shape[d];
      for (int k = 0; k < kOperands; ++k) strides[k][d] = rows.strides[static_cast<size_t>(k)][d];
    }
  }

  __device__ void offsets(int64_t element, int64_t (&at)[kOperands]) const {
    for (int k = 0; k < kOperands; ++k) at[k] = 0;
    for (int d = ndim - 1; d >= 0; --d) {
      const int64_t rest = element / extents[d], i = element - rest * extents[d];
      element = rest;
      for (int k = 0; k < kOperands; ++k) at[k] += i * strides[k][d];
    }
  }
};

}  // namespace elinvar
