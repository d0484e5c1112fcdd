#pragma once
// Sums and means over any dimensions of a float32 or float64 tensor.
//
// The order depends on shape and dimensions only. Dimensions of extent 1 are dropped, and neighbours that are both
// reduced, or both kept, are merged. Then
//   1. a reduced group at the end is a row and is summed by rule 11 of NUMERICS.md (if nothing is left to reduce, each
//      element is a row of one);
//   2. all other reduced groups together, indices in row-major order, are a column and are summed by rule 12 over the
//      results of 1.
// So the sum of a whole tensor is one row; a bias gradient is one column per channel. A mean is that sum, then one
// division by the number of elements.
// division by the number of elements.
#include "tensor/tensor.h"

namespace elinvar {

// Reduces over `dims` (all if empty), which may count from the end; keepdim keeps them with extent 1.
Tensor sum(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
Tensor mean(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);

// Sums dy to `shape`, which broadcasts to dy's: the gradient of a broadcast operand. Computes nothing if nothing was
// broadcast.
Tensor sum_to(const Tensor& dy, const Shape& shape);

}  // namespace elinvar
