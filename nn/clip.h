#pragma once
// Clipping by the global norm of the gradients.
#include <span>

#include "tensor/tensor.h"

namespace elinvar {

struct Clipping {
  double norm = 0.0;   // of all gradients together, before clipping (NUMERICS.md, rule 19)
  double scale = 1.0;  // what the optimiser should multiply them by
};

// scale = min(1, max_norm / (norm + 1e-6)), as in PyTorch; max_norm 0 means no clipping. The gradients are not changed.
// If the norm is not finite, scale is 1 and the caller must stop (rule 22).
Clipping clip_by_global_norm(std::span<const Tensor> gradients, double max_norm);
// The same from the segment_sums() of all gradients (tensor/ops/global_norm.h).
Clipping clip_by_global_norm(std::span<const double> segment_sums, double max_norm);

}  // namespace elinvar
