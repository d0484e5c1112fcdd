#pragma once
// A table of vectors that are looked up by index, and that may also be the head that gives logits of the same indices.
// Parameter: weight (rows, channels), from N(0, 1) as in PyTorch, cut by rows into virtual shards (NUMERICS.md, rule
// 26).
#include <vector>

#include "autograd/linear.h"
#include "autograd/loss.h"
#include "autograd/shape.h"
#include "autograd/shards.h"
#include "nn/initializers.h"
#include "nn/network.h"

namespace elinvar {

struct Embedding {
  std::vector<Var> weights;  // one per shard
  int64_t rows = 0;

  Embedding() = default;
  Embedding(const Scope& scope, int64_t all_rows, int64_t channels, const Initializer& init = init::normal(1.0),
            int shards = 1)
      : weights(scope.shards("weight", {all_rows, channels}, init, {.shards = shards, .things = all_rows})),
        rows(all_rows) {}

  // index (..) int32 or int64 -> (.., channels)
  Var operator()(const Tensor& index, const Context& context) const {
    if (weights.size() == 1) return embedding(weights[0], index);
    const Shards shards = context.shards(static_cast<int>(weights.size()));
    std::vector<Var> values;
    for (int s = shards.own().begin; s < shards.own().end; ++s)
      values.push_back(embedding(weights[static_cast<size_t>(s)], index, shard_of(rows, s, shards.count)));
    return reduce_from_shards(std::move(values), shards);
  }

  // x (.., channels) -> logits (.., rows) in their shards
  ShardedLogits logits(const Var& x, const Context& context) const {
    const Shards shards = context.shards(static_cast<int>(weights.size()));
    const auto of_shard = [this](const Var& copy, size_t s) { return linear(copy, weights[s]); };
    return {.parts = map_shards(x, shards, of_shard), .shards = shards, .classes = rows};
  }
};

}  // namespace elinvar
