#pragma once
// The processes that compute the virtual shards of a micro-batch together (NUMERICS.md, rule 24). Which shards a
// process computes, and how it gets the values of the others, decides no bit of the result.
#include <vector>

#include "tensor/tensor.h"

namespace elinvar {

// The shards that a process computes: [begin, end).
struct ShardRange {
  int begin = 0, end = 1;
  int size() const { return end - begin; }
};

// Combines the values of all shards of one micro-batch. Values are in the order of their shards; those passed are the
// ones that own() tells for `count` shards. All processes of a group call the same functions in the same order and get
// the same results.
class ShardGroup {
 public:
  virtual ~ShardGroup() = default;
  // Returns the shards that are computed here: at least one.
  virtual ShardRange own(int count) const = 0;
  // Returns the sum over all shards by the tree of rule 18 (tensor/reduction_tree.h). May add in place.
  virtual Tensor sum(std::vector<Tensor> values, int count) = 0;
  // Returns the values of all shards, which have these shapes.
  virtual std::vector<Tensor> gather(std::vector<Tensor> values, const std::vector<Shape>& shapes) = 0;
};

// The group of a process that computes all shards.
ShardGroup& local_shards();

// The group of a process that computes some shards alone and leaves out the others, as if their values were zero: the
// results mean nothing, but take the time and the memory of a process in a group with others.
class PartialShards final : public ShardGroup {
 public:
  explicit PartialShards(ShardRange own) : own_(own) {}
  ShardRange own(int) const override { return own_; }
  Tensor sum(std::vector<Tensor> values, int count) override;
  std::vector<Tensor> gather(std::vector<Tensor> values, const std::vector<Shape>& shapes) override;

 private:
  ShardRange own_;
};

}  // namespace elinvar
