#include "nn/clip.h"

#include <cmath>

#include "tensor/base/check.h"
#include "tensor/ops/global_norm.h"

namespace elinvar {

Clipping clip_by_global_norm(std::span<const Tensor> gradients, double max_norm) {
  check(max_norm >= 0.0, "[clip] the largest norm must be at least 0, got {}", max_norm);
  const double norm = global_norm(gradients);
  const double ratio = max_norm / (norm + 1e-6);
  return {norm, max_norm > 0.0 && std::isfinite(norm) && ratio < 1.0 ? ratio : 1.0};
}

}  // namespace elinvar
