#pragma once
// A mixture of experts in place of a perceptron: a router sends each token to a few of many experts, and adds up their
// results by its weights (NUMERICS.md, rule 30).
//
//   mixture_ = Mixture(scope / "mlp", channels, options, init, shards);
//   up_ = ExpertLinear(scope / "mlp" / "experts" / "up", channels, hidden, init, mixture_.cut());
//   down_ = ExpertLinear(scope / "mlp" / "experts" / "down", hidden, channels, init, mixture_.cut());
//   Var y = mixture_(x, context, [&](const Var& rows, size_t s) { return down_(relu(up_(rows, s)), s); });
//
// Each expert serves at most expert_capacity() tokens in training. Choices beyond that are dropped, so a token may get
// fewer than k experts, or none, and then the result 0. Nothing is dropped outside of training, so the result for a
// token depends neither on other texts in the batch nor on later tokens. Virtual shards cut the experts.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "autograd/experts.h"
#include "autograd/linear.h"
#include "autograd/precision.h"
#include "autograd/shape.h"
#include "autograd/shards.h"
#include "nn/initializers.h"
#include "nn/network.h"

namespace elinvar {

struct MixtureOptions {
  int64_t experts = 0;  // 0: a perceptron instead
  int64_t experts_per_token = 2;
  double capacity_factor = 1.25;
  RouterLosses losses = {.balance_weight = 0.01};
};

// Returns ceil(factor * k * tokens / experts), in float64 from left to right, but at least 1 and at most `tokens`.
inline int64_t expert_capacity(const MixtureOptions& o, int64_t tokens) {
  const double share = o.capacity_factor * static_cast<double>(o.experts_per_token) * static_cast<double>(tokens) /
                       static_cast<double>(o.experts);
  return static_cast<int64_t>(std::clamp(std::ceil(share), 1.0, static_cast<double>(tokens)));
}

// A linear layer of each expert, without bias. Parameter: weight (experts, in, out), cut by experts.
struct ExpertLinear {
  std::vector<Var> weights;  // one per shard

  ExpertLinear() = default;
  ExpertLinear(const Scope& scope, int64_t in, int64_t out, const Initializer& init, const Cut& experts)
      : weights(scope.shards("weight", {experts.things, in, out}, init, experts)) {}

  // The rows of the experts of shard s, (experts, rows, in) -> (experts, rows, out)
  Var operator()(const Var& rows, size_t s) const { return matmul(rows, weights[s]); }
};

// The router. Parameter: gate.weight (experts, channels). Its product is portable in each numerics, since a small error
// may send a token elsewhere.
class Mixture {
 public:
  Mixture() = default;
  Mixture(const Scope& scope, int64_t channels, const MixtureOptions& options, const Initializer& init, int shards)
      : options_(options),
        cut_{.shards = shards, .things = options.experts},
        gate_((scope / "gate").parameter("weight", {options.experts, channels}, init)) {}

  const Cut& cut() const { return cut_; }

  // expert(rows, s) returns what the experts of shard s make of their rows, (experts, rows, channels) -> the same
  // shape. x (.., channels) -> like x
  template <class Expert>
  Var operator()(const Var& x, Context& context, Expert expert) const {
    const Var tokens = reshape(x, {-1, x.dim(-1)});
    const Routing routing = route(logits(tokens), options_.experts_per_token, options_.losses);
    int64_t capacity = expert_capacity(options_, tokens.dim(0));
    if (!context.training) capacity = report(loads_of(routing), capacity, context);
    const Shards shards = context.shards(cut_.shards);
    const std::vector<Var> weights = copy_to_shards(routing.weight, shards);
    const auto of_shard = [&](const Var& copy, size_t s) {
      const IndexShard own = cut_.things_of(static_cast<int>(s));
      const Var rows = expert(dispatch(copy, routing, capacity, own), s);
      return combine(rows, weights[s - static_cast<size_t>(shards.own().begin)], routing, own);
    };
    return reshape(reduce_from_shards(map_shards(tokens, shards, of_shard), shards), x.shape());
  }

 private:
  // Returns the capacity for which nothing is dropped.
  static int64_t report(std::vector<int64_t> choices, int64_t capacity, Context& context) {
    ExpertLoad load{.choices = std::move(choices)};
    for (const int64_t n : load.choices) load.dropped += std::max<int64_t>(n - capacity, 0);
    context.loads.push_back(load);
    return std::ranges::max(load.choices);
  }

  Var logits(const Var& tokens) const {
    const PrecisionScope portable(Precision::portable);
    return linear(widened(tokens), gate_);
  }

  MixtureOptions options_;
  Cut cut_;
  Var gate_;
};

}  // namespace elinvar
