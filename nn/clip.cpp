#include "nn/clip.h"

#include <cmath>

#include "tensor/base/check.h"
#include "tensor/ops/global_norm.h"

namespace elinvar {

namespace {

Clipping clipping_of(double norm, double max_norm) {
  check(max_norm >= 0.0, "[clip] the largest norm must be at least 0, got {}", max_norm);
  const double ratio = max_norm / (norm + 1e-6);
  return {norm, max_norm > 0.0 && std::isfinite(norm) && ratio < 1.0 ? ratio : 1.0};
}

}  // namespace

Clipping clip_by_global_norm(std::span<const Tensor> gradients, double max_norm) {
  return clipping_of(global_norm(gradients), max_norm);
}

Clipping clip_by_global_norm(std::span<const double> segment_sums, double max_norm) {
  return clipping_of(global_norm(segment_sums), max_norm);
}

}  // namespace elinvar
