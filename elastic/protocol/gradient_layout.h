#pragma once
// The shapes of a rank gradient's tensors, and the buckets in which members exchange them. A worker learns them from
// the first rank gradient that has samples.
#include <optional>

#include "comm/buckets.h"
#include "elastic/step/step.h"

namespace elinvar {

class GradientLayout {
 public:
  explicit GradientLayout(int64_t bucket_elements) : bucket_elements_(bucket_elements) {}

  // Returns whether the layout was learned: false if it was known before, or if the rank gradient has no tensors.
  bool learn(const RankGradient& gradient);
  bool known() const { return buckets_.has_value(); }

  const Buckets* buckets() const { return buckets_ ? &*buckets_ : nullptr; }  // null unless known
  int bucket_count() const { return buckets_ ? buckets_->count() : 0; }
  const Buckets& whole_buckets() const { return *whole_buckets_; }  // for groups of GPUs, which do not cut tensors
  int gradients() const { return gradients_; }  // the number of gradients; batch statistics follow them

 private:
  int64_t bucket_elements_;
  std::optional<Buckets> buckets_, whole_buckets_;
  int gradients_ = 0;
};

}  // namespace elinvar
