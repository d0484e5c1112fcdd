#pragma once
// Linear layers whose parameters are cut into virtual shards (NUMERICS.md, rules 24 and 25). With one shard they are
// those of nn/linear.h, op by op.
//
//   const Cut cut{.shards = V, .things = hidden};
//   const std::vector<Linear> up = column_parallel_linear(scope / "up", channels, hidden, init, cut);
//   const RowParallelLinear down(scope / "down", hidden, channels, init, cut);
//   Var y = down(x, context, [&](const Var& x, size_t s) { return relu(up[s](x)); });
#include <vector>

#include "autograd/pointwise.h"
#include "autograd/shards.h"
#include "nn/linear.h"
#include "nn/network.h"

namespace elinvar {

// Creates a linear layer in shards of its outputs: W (out, in) and b (out) are cut by rows.
inline std::vector<Linear> column_parallel_linear(const Scope& scope, int64_t in, int64_t out, const LinearInit& init,
                                                  const Cut& cut) {
  std::vector<Linear> layers(static_cast<size_t>(cut.shards));
  const std::vector<Var> weights = scope.shards("weight", {out, in}, init.weight, cut);
  for (size_t s = 0; s < layers.size(); ++s) layers[s].weight = weights[s];
  if (!init.bias) return layers;
  const std::vector<Var> biases = scope.shards("bias", {out}, bias_init(init, in), cut);
  for (size_t s = 0; s < layers.size(); ++s) layers[s].bias = biases[s];
  return layers;
}

// Applies such a layer alone, and joins the outputs of all shards: x (.., in) -> (.., out).
inline Var joined_columns(const std::vector<Linear>& layers, const Var& x, const Context& context) {
  const Shards shards = context.shards(static_cast<int>(layers.size()));
  const auto of_shard = [&](const Var& copy, size_t s) { return layers[s](copy); };
  std::vector<int64_t> extents;
  for (const Linear& layer : layers) extents.push_back(layer.weight.dim(0));
  return gather_from_shards(map_shards(x, shards, of_shard), -1, extents, shards);
}

// A linear layer in shards of its inputs, the end of a branch: W (out, in) is cut by columns, and b is added once to
// the sum of all shards.
struct RowParallelLinear {
  std::vector<Var> weights;
  Var bias;

  RowParallelLinear() = default;
  RowParallelLinear(const Scope& scope, int64_t in, int64_t out, const LinearInit& init, const Cut& cut)
      : weights(scope.shards("weight", {out, in}, init.weight, cut.along(1))) {
    if (init.bias) bias = scope.parameter("bias", {out}, bias_init(init, in));
  }

  // branch(x, s) returns the input of shard s, (.., in_s), from the input of the branch -> (.., out).
  template <class Branch>
  Var operator()(const Var& x, const Context& context, Branch branch) const {
    if (weights.size() == 1) return linear(branch(x, size_t{0}), weights[0], bias);
    const Shards shards = context.shards(static_cast<int>(weights.size()));
    const auto of_shard = [&](const Var& copy, size_t s) { return linear(branch(copy, s), weights[s]); };
    const Var y = reduce_from_shards(map_shards(x, shards, of_shard), shards);
    return bias.defined() ? cast(y + bias, y.value().dtype()) : y;
  }
};

}  // namespace elinvar
