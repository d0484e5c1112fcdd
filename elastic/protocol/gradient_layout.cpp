#include "elastic/protocol/gradient_layout.h"

#include <utility>
#include <vector>

namespace elinvar {

bool GradientLayout::learn(const RankGradient& gradient) {
  if (buckets_ || gradient.gradients.empty()) return false;
  std::vector<Shape> shapes;
  for (const Tensor& t : gradient.gradients) shapes.push_back(t.shape());
  for (const Tensor& t : gradient.batch_statistics) shapes.push_back(t.shape());
  gradients_ = static_cast<int>(gradient.gradients.size());
  whole_buckets_.emplace(shapes, bucket_elements_, /*whole=*/true);
  buckets_.emplace(std::move(shapes), bucket_elements_);
  return true;
}

}  // namespace elinvar
