#pragma once
// How a parameter is cut into virtual shards (NUMERICS.md, rule 25).
//
// Dimension `dim` of the whole consists of `groups` equal groups of `things` equal things (heads, hidden channels, rows
// of a vocabulary). Shard s of V has things [floor(things s / V), floor(things (s + 1) / V)) of every group, in order:
// the rows of a GPT's c_attn are three groups (queries, keys, values) of as many things as there are heads.
#include <cstdint>
#include <span>

#include "tensor/ops/index.h"
#include "tensor/tensor.h"

namespace elinvar {

struct Cut {
  int shards = 1;
  int64_t things = 1, groups = 1;
  int dim = 0;

  IndexShard things_of(int shard) const { return shard_of(things, shard, shards); }
  Shape shape_of(Shape whole, int shard) const;
  Tensor part_of(const Tensor& whole, int shard) const;  // contiguous
  Tensor joined(std::span<const Tensor> parts) const;    // of all shards, in order; contiguous
  Cut along(int other) const { return {shards, things, groups, other}; }
};

}  // namespace elinvar
