#pragma once
// The shapes of a rank gradient's tensors, and the buckets in which members exchange them. A worker learns them from
// the first rank gradient that has samples.
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "comm/buckets.h"
#include "elastic/step/step.h"

namespace elinvar {

// With ZeRO, tensors are cut at multiples of some number of elements, and no bucket has both gradients and batch
// statistics. The buckets of parameters, the units in which the optimizer's state is sharded, follow from their shapes.
//
// The gradient of a sparse table (nn/touched_rows.h) has places for the rows that a step touches, so its buckets are
// not those of the table. Dense parameters come first in the buckets of both, which are the same there.
struct ShardOptions {
  int64_t multiple = 1;
  std::vector<Shape> parameters = {};
  std::map<int, int64_t> tables = {};  // sparse ones, by index; each is cut at multiples of so many elements: of rows
  bool sums = false;                   // an update needs sums over whole parameters (trust ratios)
  int zero = 1;                        // ZeRO's stage when the worker comes; a generation may have another
};

// The part of the network that a tensor belongs to.
struct NetworkPart {
  int segment = 0;  // the last one that uses it
  int shard = -1;   // the virtual shard; -1: the tensor is not cut
  auto operator<=>(const NetworkPart&) const = default;
};

// The parts of a rank gradient's tensors, in order.
struct TensorParts {
  std::vector<NetworkPart> gradients;
  std::vector<int> statistics = {};  // the segments of batch statistics; empty: those that the rank gradient names
  bool unsharded = true;             // also without ZeRO no bucket has tensors of several parts
};

class GradientLayout {
 public:
  // With `parts` no bucket has tensors of several parts; without ZeRO only if the job begins with model replicas of
  // several workers, because more buckets are slower.
  explicit GradientLayout(int64_t bucket_elements, const std::optional<ShardOptions>& sharding = {},
                          std::optional<TensorParts> parts = {});

  // The stage of ZeRO of the step that members compute or follow; 0: without ZeRO.
  void use(int zero) { zero_ = zero; }
  int zero() const { return zero_; }

  // Returns whether the layout was learned: false if it was known before, or if the rank gradient has no tensors.
  bool learn(const RankGradient& gradient);
  bool known() const { return buckets_.has_value(); }

  const Buckets* buckets() const { return buckets_of(sharded()); }  // null unless known
  const Buckets* buckets_of(bool sharded) const;
  int bucket_count() const { return known() ? buckets()->count() : 0; }
  bool sharded() const { return zero_ > 0; }
  bool whole_parameters() const { return zero_ < 3; }  // every member has all parameters
  bool sums() const { return sums_; }                  // an update needs sums over whole parameters
  // Returns the number of buckets of parameters with ZeRO, else 0. Those of sparse tables come last.
  int shards() const { return sharded() ? shards_.count() : 0; }
  bool of_table(int shard) const { return shard >= dense_shards_; }
  bool is_table(int parameter) const { return tables_.contains(parameter); }  // a sparse one
  // The number of buckets of gradients with ZeRO, once the layout is known. Those of batch statistics follow them.
  int gradient_shards() const { return gradient_shards_; }
  // Whether these can be the parameters in a bucket; of a sparse table they may be some of the rows.
  bool fits(int shard, std::span<const Blob> values) const;
  const Buckets& shard_buckets() const { return shards_; }          // with ZeRO; known from the beginning
  const Buckets& whole_buckets() const { return *whole_buckets_; }  // for groups of GPUs, which do not cut tensors
  int gradients() const { return gradients_; }  // the number of gradients; batch statistics follow them
  NetworkPart part(int tensor) const;           // of a gradient or a batch statistic, once the layout is known

 private:
  int dense_of(const Buckets& buckets) const;
  std::vector<int> groups(size_t gradients, size_t statistics) const;

  int64_t bucket_elements_, shard_elements_ = 0, shard_multiple_ = 1;
  int zero_ = 0;
  std::optional<Buckets> buckets_, sharded_buckets_, whole_buckets_;
  int gradients_ = 0;
  Buckets shards_;
  int dense_shards_ = 0, gradient_shards_ = 0;
  std::set<int> tables_;
  bool sums_ = false;
  std::optional<TensorParts> parts_;
};

}  // namespace elinvar
