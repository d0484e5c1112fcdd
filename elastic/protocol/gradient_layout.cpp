#include "elastic/protocol/gradient_layout.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tensor/base/check.h"

namespace elinvar {

// Small networks have smaller buckets, so that there are enough to be dealt evenly.
constexpr int64_t kLeastShards = 64;

GradientLayout::GradientLayout(int64_t bucket_elements, const std::optional<ShardOptions>& sharding)
    : bucket_elements_(bucket_elements) {
  if (!sharding) return;
  shard_multiple_ = sharding->multiple;
  sums_ = sharding->sums;
  int64_t elements = 0;
  for (const Shape& shape : sharding->parameters) elements += shape.numel();
  bucket_elements = bucket_elements_ = std::clamp<int64_t>(elements / kLeastShards, 1, bucket_elements);
  shards_ = Buckets(sharding->parameters, bucket_elements, BucketCuts{.multiple = sharding->multiple});
}

bool GradientLayout::learn(const RankGradient& gradient) {
  if (buckets_ || gradient.gradients.empty()) return false;
  std::vector<Shape> shapes;
  for (const Tensor& t : gradient.gradients) shapes.push_back(t.shape());
  for (const Tensor& t : gradient.batch_statistics) shapes.push_back(t.shape());
  gradients_ = static_cast<int>(gradient.gradients.size());
  whole_buckets_.emplace(shapes, bucket_elements_, /*whole=*/true);
  if (shard_multiple_) {
    buckets_.emplace(std::move(shapes), bucket_elements_,
                     BucketCuts{.multiple = *shard_multiple_, .apart = gradient.gradients.size()});
    invariant(buckets_->below(gradients_) == shards_.count(), "gradients have the shapes of parameters");
  } else {
    buckets_.emplace(std::move(shapes), bucket_elements_);
  }
  return true;
}

}  // namespace elinvar
