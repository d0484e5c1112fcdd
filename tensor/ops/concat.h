#pragma once
// Joins tensors, and pads them. Takes any element type and copies everything.
#include <vector>

#include "tensor/tensor.h"

namespace elinvar {

// Joins `parts` along `dim`, in order. Their other extents and their dtypes must be equal.
Tensor concat(const std::vector<Tensor>& parts, int dim);

// Returns x with before[i] and after[i] elements of `value` around it in dimension i.
Tensor pad(const Tensor& x, const std::vector<int64_t>& before, const std::vector<int64_t>& after, double value = 0.0);

}  // namespace elinvar
