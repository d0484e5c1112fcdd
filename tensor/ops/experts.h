#pragma once
// The traffic between tokens and the experts that serve them (route.h). An expert has `capacity` rows; choice i of
// token i mod tokens has row `position[i]` of expert `expert[i]`, and is dropped if the position is not below the
// capacity. The experts may be a shard of all experts; to it, choices of others are like dropped ones.
#include "tensor/ops/index.h"
#include "tensor/tensor.h"
#include "tensor/view.h"

namespace elinvar {

// y[e, c, :] = x[t, :], times the weight of the choice if there are weights, for the choice of token t that has row c
// of expert first + e. Rows without a choice are +0.
struct DispatchArgs {
  In x;             // (tokens, cols)
  In weight;        // (choices), or no data
  In order, start;  // of Routes
  Out y;            // (experts, capacity, cols)
  int64_t tokens, choices, cols, first, experts, capacity;

  // Returns the choice that has a row of y, or -1.
  constexpr int64_t choice_of(int64_t row) const {
    const int64_t *s = start.as<int64_t>() + first + row / capacity, i = s[0] + row % capacity;
    if (i < 0 || i >= s[1] || i >= choices) return -1;
    const int64_t choice = order.as<int64_t>()[i];
    return choice < choices ? choice : -1;
  }
};
void dispatch(CpuStream&, const DispatchArgs&);
template <class B>
void dispatch(GpuStream<B>&, const DispatchArgs&);

// x[t, :] = sum of the rows of y that token t's choices have, times their weights if there are weights: from +0, in the
// order of choices, acc = fma(weight, y, acc), or acc + y without weights.
struct CombineArgs {
  In y;                 // (experts, capacity, cols)
  In weight;            // (chosen, tokens), or no data
  In expert, position;  // of Routes
  Out x;                // (tokens, cols)
  int64_t tokens, chosen, cols, first, experts, capacity;

  // Returns the row of y that a choice has, or -1.
  constexpr int64_t row_of(int64_t choice) const {
    const int64_t e = expert.as<int64_t>()[choice] - first, c = position.as<int64_t>()[choice];
    return e >= 0 && e < experts && c >= 0 && c < capacity ? e * capacity + c : -1;
  }
};
void combine(CpuStream&, const CombineArgs&);
template <class B>
void combine(GpuStream<B>&, const CombineArgs&);

// The gradient of the weights: dweight[i] = dot product (NUMERICS.md, rule 11) of dx[i mod tokens, :] and the row of y
// that choice i has, or +0 if it has none.
struct CombineWeightArgs {
  In dx;
  CombineArgs of;  // without x
  Out dweight;     // (chosen, tokens)
};
void combine_weight(CpuStream&, const CombineWeightArgs&);
template <class B>
void combine_weight(GpuStream<B>&, const CombineWeightArgs&);

// `shard` is the experts that y has. Tensors are float32 or float64; `weight` may be undefined.
// x (tokens, C), order (k * tokens), start (shard.whole + 1) -> (shard.count, capacity, C)
Tensor dispatch(const Tensor& x, const Tensor& weight, const Tensor& order, const Tensor& start, int64_t capacity,
                const IndexShard& shard);
// y (shard.count, capacity, C), expert and position (k, tokens) -> (tokens, C)
Tensor combine(const Tensor& y, const Tensor& weight, const Tensor& expert, const Tensor& position,
               const IndexShard& shard);
// dx (tokens, C) -> (k, tokens)
Tensor combine_weight(const Tensor& dx, const Tensor& y, const Tensor& expert, const Tensor& position,
                      const IndexShard& shard);

}  // namespace elinvar
