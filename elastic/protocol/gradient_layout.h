#pragma once
// The shapes of a rank gradient's tensors, and the buckets in which members exchange them. A worker learns them from
// the first rank gradient that has samples.
#include <optional>
#include <vector>

#include "comm/buckets.h"
#include "elastic/step/step.h"

namespace elinvar {

// With ZeRO, tensors are cut at multiples of some number of elements, and no bucket has both gradients and batch
// statistics. The buckets of gradients, the units in which the optimizer's state is sharded, follow from the shapes of
// the parameters.
struct ShardOptions {
  int64_t multiple = 1;
  std::vector<Shape> parameters = {};
  bool sums = false;             // an update needs sums over whole parameters (trust ratios)
  bool whole_parameters = true;  // every member has all parameters; false: with ZeRO-3
};

// The part of the network that a tensor belongs to.
struct NetworkPart {
  int segment = 0;  // the last one that uses it
  int shard = -1;   // the virtual shard; -1: the tensor is not cut
  auto operator<=>(const NetworkPart&) const = default;
};

// With tensor or pipeline parallelism: the parts of a rank gradient's tensors, in order.
struct TensorParts {
  std::vector<NetworkPart> gradients;
  std::vector<int> statistics = {};  // the segments of batch statistics; empty: they are all in segment 0
};

class GradientLayout {
 public:
  // With `parts` no bucket has tensors of several parts.
  explicit GradientLayout(int64_t bucket_elements, const std::optional<ShardOptions>& sharding = {},
                          std::optional<TensorParts> parts = {});

  // Returns whether the layout was learned: false if it was known before, or if the rank gradient has no tensors.
  bool learn(const RankGradient& gradient);
  bool known() const { return buckets_.has_value(); }

  const Buckets* buckets() const { return buckets_ ? &*buckets_ : nullptr; }  // null unless known
  int bucket_count() const { return buckets_ ? buckets_->count() : 0; }
  // With ZeRO: the buckets of gradients, known from the beginning. Those of batch statistics follow them.
  bool sharded() const { return shard_multiple_.has_value(); }
  bool sums() const { return sums_; }  // an update needs sums over whole parameters
  bool whole_parameters() const { return whole_parameters_; }
  int shards() const { return shards_.count(); }
  const Buckets& shard_buckets() const { return shards_; }
  const Buckets& whole_buckets() const { return *whole_buckets_; }  // for groups of GPUs, which do not cut tensors
  int gradients() const { return gradients_; }         // the number of gradients; batch statistics follow them
  bool divided() const { return parts_.has_value(); }  // with tensor or pipeline parallelism
  NetworkPart part(int tensor) const;                  // of a gradient or a batch statistic, once the layout is known

 private:
  std::vector<int> groups(size_t gradients, size_t statistics) const;

  int64_t bucket_elements_;
  std::optional<int64_t> shard_multiple_;
  std::optional<Buckets> buckets_, whole_buckets_;
  int gradients_ = 0;
  Buckets shards_;
  bool sums_ = false, whole_parameters_ = true;
  std::optional<TensorParts> parts_;
};

}  // namespace elinvar
