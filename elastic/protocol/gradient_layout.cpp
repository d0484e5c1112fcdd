#include "elastic/protocol/gradient_layout.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "tensor/base/check.h"

namespace elinvar {

// Small networks have smaller buckets, so that there are enough to be dealt evenly.
constexpr int64_t kLeastShards = 64;

GradientLayout::GradientLayout(int64_t bucket_elements, const std::optional<ShardOptions>& sharding,
                               std::optional<TensorParts> parts)
    : bucket_elements_(bucket_elements), parts_(std::move(parts)) {
  if (!sharding) return;
  zero_ = sharding->zero;
  shard_multiple_ = sharding->multiple;
  sums_ = sharding->sums;
  int64_t elements = 0;
  for (const Shape& shape : sharding->parameters) elements += shape.numel();
  shard_elements_ = std::clamp<int64_t>(elements / kLeastShards, 1, bucket_elements);
  for (const auto& [table, multiple] : sharding->tables) tables_.insert(table);
  shards_ = Buckets(sharding->parameters, shard_elements_,
                    BucketCuts{.multiple = sharding->multiple,
                               .multiples = sharding->tables,
                               .groups = groups(sharding->parameters.size(), 0)});
  dense_shards_ = dense_of(shards_);
}

// Returns the number of buckets before those of tables.
int GradientLayout::dense_of(const Buckets& buckets) const {
  int dense = 0;
  while (dense < buckets.count() && !tables_.contains(buckets.slices(dense)[0].tensor)) ++dense;
  return dense;
}

bool GradientLayout::fits(int shard, std::span<const Blob> values) const {
  if (!of_table(shard)) return shards_.fits(shard, values);
  const auto most = static_cast<size_t>(shards_.slices(shard)[0].numel()) * sizeof(float);
  return values.size() == 1 && values[0].bytes <= most && values[0].bytes % sizeof(float) == 0;
}

const Buckets* GradientLayout::buckets_of(bool sharded) const {
  const std::optional<Buckets>& buckets = sharded ? sharded_buckets_ : buckets_;
  return buckets ? &*buckets : nullptr;
}

NetworkPart GradientLayout::part(int tensor) const {
  const auto t = static_cast<size_t>(tensor);
  if (!parts_) return {};
  if (t < parts_->gradients.size()) return parts_->gradients[t];
  const size_t statistic = t - parts_->gradients.size();
  return {.segment = statistic < parts_->statistics.size() ? parts_->statistics[statistic] : 0};
}

// Returns the groups of gradients and of `statistics` batch statistics in buckets: one for each part of the network,
// first of gradients; each sparse table has one of its own, after those of other gradients.
std::vector<int> GradientLayout::groups(size_t gradients, size_t statistics) const {
  const auto key = [&](size_t i) {
    const auto t = static_cast<int>(i);
    const bool table = tables_.contains(t);
    return std::tuple(i >= gradients, table ? t : -1, part(t));
  };
  std::map<std::tuple<bool, int, NetworkPart>, int> numbers;
  for (size_t i = 0; i < gradients + statistics; ++i) numbers[key(i)] = 0;
  int next = 0;
  for (auto& [part, number] : numbers) number = next++;
  std::vector<int> groups;
  for (size_t i = 0; i < gradients + statistics; ++i) groups.push_back(numbers.at(key(i)));
  return groups;
}

bool GradientLayout::learn(const RankGradient& gradient) {
  const auto absent = [](const Tensor& t) { return !t.defined(); };
  if (known() || gradient.gradients.empty() || std::ranges::any_of(gradient.gradients, absent)) return false;
  std::vector<Shape> shapes;
  for (const Tensor& t : gradient.gradients) shapes.push_back(t.shape());
  for (const Tensor& t : gradient.batch_statistics) shapes.push_back(t.shape());
  gradients_ = static_cast<int>(gradient.gradients.size());
  if (parts_ && parts_->statistics.empty()) parts_->statistics = gradient.statistics_segments;
  const std::vector<int> groups = this->groups(gradient.gradients.size(), gradient.batch_statistics.size());
  BucketCuts cuts;
  if (parts_ && parts_->unsharded) cuts.groups = groups;
  buckets_.emplace(shapes, bucket_elements_, cuts);
  cuts.whole = true;
  whole_buckets_.emplace(shapes, bucket_elements_, cuts);
  if (shards_.count() == 0) return true;
  sharded_buckets_.emplace(std::move(shapes), shard_elements_,
                           BucketCuts{.multiple = shard_multiple_, .groups = groups});
  gradient_shards_ = sharded_buckets_->below(gradients_);
  invariant((tables_.empty() ? gradient_shards_ : dense_of(*sharded_buckets_)) == dense_shards_,
            "gradients have the shapes of parameters");
  return true;
}

}  // namespace elinvar
