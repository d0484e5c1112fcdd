#pragma once
// A rank gradient that is passed on bucket by bucket as its tensors come, and of which nothing is kept: a tensor is
// held until all buckets that it is in are complete.
#include <cstdint>
#include <utility>
#include <vector>

#include "comm/buckets.h"

namespace elinvar {

class PassingGradient {
 public:
  // `buckets`, of gradients and batch statistics, must outlive it; `count` is the number of its targets.
  PassingGradient(int vrank, int64_t count, const Buckets& buckets);

  int vrank() const { return vrank_; }
  int64_t count() const { return count_; }
  // Whether all buckets were passed on, of which some may be `absent`, because their tensors are not put.
  bool complete(int absent = 0) const { return left_ == absent; }

  // Takes a tensor, by its index among gradients and batch statistics. Returns the buckets that it completes, with
  // their slices, which share its storage.
  std::vector<std::pair<int, std::vector<Tensor>>> put(int tensor, Tensor value);

 private:
  void release(int bucket);

  int vrank_;
  int64_t count_;
  const Buckets* buckets_;
  int left_;                    // buckets
  std::vector<Tensor> values_;  // those that are held
  std::vector<int> missing_;    // by bucket: slices that have not come
  std::vector<int> wanted_;     // by tensor: buckets that are not complete
};

}  // namespace elinvar
