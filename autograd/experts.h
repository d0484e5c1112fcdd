#pragma once
// A mixture of experts (Shazeer et al., arXiv:1701.06538): each token goes to a few of many experts, and its result is
// the weighted sum of theirs. tensor/ops/route.h and tensor/ops/experts.h define choices, orders and sums.
//
//   const Routing routing = route(linear(x, gate), 2, {.balance_weight = 0.01});
//   const IndexShard all{0, experts, experts};
//   Var rows = dispatch(x, routing, capacity, all);             // (experts, capacity, C)
//   Var y = combine(f(rows), routing.weight, routing, all);     // (tokens, C)
#include "autograd/var.h"
#include "tensor/ops/index.h"
#include "tensor/ops/route.h"

namespace elinvar {

struct Routing {
  Var weight;                             // (k, tokens)
  Tensor expert, position, order, start;  // of Routes
};

// Routes tokens by their logits (tokens, experts). The losses have no value here, but the gradient of the logits has
// their terms, as if they were added to the loss from which backward() starts. The terms are there only where the loss
// depends on the weights.
Routing route(const Var& logits, int64_t k, const RouterLosses& losses = {});

// Returns the number of choices of each expert. Waits for a GPU.
std::vector<int64_t> loads_of(const Routing& routing);

// Returns the tokens x (tokens, C) in the rows of the experts that serve them, (shard.count, capacity, C).
Var dispatch(const Var& x, const Routing& routing, int64_t capacity, const IndexShard& shard);

// Returns the weighted sums of the experts' rows (shard.count, capacity, C) for each token, (tokens, C). `weight` is
// routing.weight or a copy.
Var combine(const Var& y, const Var& weight, const Routing& routing, const IndexShard& shard);

}  // namespace elinvar
