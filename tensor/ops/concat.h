#pragma once
// Joining tensors, and room around one. Any element type; everything is copied.
#include <vector>

#include "tensor/tensor.h"

namespace elinvar {

// Along `dim`, in order; the other extents and the dtypes are equal.
Tensor concat(const std::vector<Tensor>& parts, int dim);

// x with before[i] and after[i] elements of `value` around it in dimension i.
Tensor pad(const Tensor& x, const std::vector<int64_t>& before, const std::vector<int64_t>& after, double value = 0.0);

}  // namespace elinvar
