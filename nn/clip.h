#pragma once
// Clipping by the global norm of the gradients.
#include <span>

#include "tensor/tensor.h"

namespace elinvar {

struct Clipping {
  double norm = 0.0;   // of all gradients together, before clipping (NUMERICS.md, rule 19)
  double scale = 1.0;  // what the optimiser should multiply them by
};

// scale = max_norm / (norm + 1e-6) where that is below 1, as in PyTorch, else 1; max_norm 0 means no
// clipping. The gradients are not touched. A norm that is not finite gives scale 1: the caller is to stop
// (rule 22).
Clipping clip_by_global_norm(std::span<const Tensor> gradients, double max_norm);

}  // namespace elinvar
