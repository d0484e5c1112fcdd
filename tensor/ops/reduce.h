#pragma once
// Sums and means over any dimensions of a float32 or float64 tensor.
//
// The order, a function of shape and dimensions alone. Dimensions of extent 1 are dropped and neighbours that are both
// reduced, or both kept, are merged; then
//   1. a reduced group at the end is a row and is summed by rule 11 of NUMERICS.md (also where nothing is left to
//      reduce: each element is then a row of one);
//   2. all other reduced groups together, indices in row-major order, are a column and are summed by rule 12 over the
//      results of 1.
// So the sum of a whole tensor is one row; a bias gradient is one column a channel. A mean is that sum, then one
// division by the number of elements.
#include "tensor/tensor.h"

namespace elinvar {

// Over `dims` (all of them if none is named), which may count from the end; keepdim leaves extents of 1.
Tensor sum(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);
Tensor mean(const Tensor& x, const std::vector<int>& dims = {}, bool keepdim = false);

// Sums dy to `shape`, which broadcasts to dy's: the gradient of a broadcast operand. No arithmetic if nothing
// was broadcast.
Tensor sum_to(const Tensor& dy, const Shape& shape);

}  // namespace elinvar
