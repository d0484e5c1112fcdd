#include "autograd/experts.h"

#include <utility>

#include "autograd/precision.h"
#include "tensor/ops/experts.h"

namespace elinvar {

Routing route(const Var& given, int64_t k, const RouterLosses& losses) {
  const Var logits = widened(given);
  Routes made = route(logits.value(), k);
  const Tensor weight = made.weight, expert = made.expert, start = made.start;
  return {record(std::move(made.weight), {logits},
                 [x = logits.value(), weight, expert, start, losses](const Tensor& dweight) {
                   return std::vector<Tensor>{route_backward(dweight, x, weight, expert, start, losses)};
                 }),
          std::move(made.expert), std::move(made.position), std::move(made.order), std::move(made.start)};
}

std::vector<int64_t> loads_of(const Routing& routing) {
  const Tensor start = routing.start.to(Device{});
  std::vector<int64_t> loads(static_cast<size_t>(start.numel() - 1));
  for (size_t e = 0; e < loads.size(); ++e) loads[e] = start.data<int64_t>()[e + 1] - start.data<int64_t>()[e];
  return loads;
}

Var dispatch(const Var& given, const Routing& r, int64_t capacity, const IndexShard& shard) {
  const Var x = widened(given);
  return record(dispatch(x.value(), {}, r.order, r.start, capacity, shard), {x},
                [expert = r.expert, position = r.position, shard](const Tensor& dy) {
                  return std::vector<Tensor>{combine(dy, {}, expert, position, shard)};
                });
}

Var combine(const Var& given, const Var& weight, const Routing& r, const IndexShard& shard) {
  const Var y = widened(given);
  return record(combine(y.value(), weight.value(), r.expert, r.position, shard), {y, weight},
                [y_value = weight.requires_grad() ? y.value() : Tensor{}, w = weight.value(), expert = r.expert,
                 position = r.position, order = r.order, start = r.start, capacity = y.dim(1), shard,
                 of_y = y.requires_grad()](const Tensor& dx) mutable {
                  std::vector<Tensor> grads(2);
                  if (y_value.defined())
                    grads[1] = combine_weight(dx, std::exchange(y_value, {}), expert, position, shard);
                  if (of_y) grads[0] = dispatch(dx, w, order, start, capacity, shard);
                  return grads;
                });
}

}  // namespace elinvar
