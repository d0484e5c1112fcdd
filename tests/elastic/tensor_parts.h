#pragma once
// The parts of a network that tensors belong to, for tests of tensor parallelism.
#include <vector>

#include "elastic/protocol/gradient_layout.h"

namespace elinvar::test {

// Tensors of one segment that belong to these virtual shards; -1: not cut.
inline TensorParts parts_of_shards(const std::vector<int>& shards) {
  TensorParts parts;
  for (const int shard : shards) parts.gradients.push_back({.segment = 0, .shard = shard});
  return parts;
}

}  // namespace elinvar::test
