#pragma once
// Virtual shards (NUMERICS.md, rule 24). A branch of a network consists of V functions of one input, each with tensors
// of its own; the branch's value is the sum of theirs, added up in the tree of rule 18. copy_to_shards() and
// reduce_from_shards() are the f and g of Megatron-LM (Shoeybi et al., arXiv:1909.08053) with that tree:
//
//   std::vector<Var> inputs = copy_to_shards(x, shards), values;
//   for (size_t i = 0; i < inputs.size(); ++i) values.push_back(linear(act(linear(inputs[i], a[i])), b[i]));
//   const Var y = reduce_from_shards(std::move(values), shards);
//
// V is part of the result, but the ShardGroup is not: it decides which shards are computed here, and how the values of
// all of them are combined.
#include <vector>

#include "autograd/var.h"
#include "tensor/shard_group.h"

namespace elinvar {

// The shards of a branch.
struct Shards {
  int count = 1;
  ShardGroup* group = &local_shards();

  ShardRange own() const { return count == 1 ? ShardRange{} : group->own(count); }
};

// Returns x once for each shard that is computed here. The gradient of x is the sum of the gradients of all shards.
std::vector<Var> copy_to_shards(const Var& x, const Shards& shards);

// Returns f(x, s) for each shard s that is computed here, where x is its copy.
template <class Function>
std::vector<Var> map_shards(const Var& x, const Shards& shards, Function f) {
  std::vector<Var> values = copy_to_shards(x, shards);
  auto s = static_cast<size_t>(shards.own().begin);
  for (Var& value : values) value = f(value, s++);
  return values;
}

// Returns the sum of the values of all shards, of which `values` are those that are computed here.
Var reduce_from_shards(std::vector<Var> values, const Shards& shards);

// Returns the values of all shards, joined along `dim`, in which they have these extents.
Var gather_from_shards(const std::vector<Var>& values, int dim, const std::vector<int64_t>& extents,
                       const Shards& shards);

}  // namespace elinvar
