#include "autograd/loss.h"

#include "tensor/check.h"
#include "tensor/ops/cross_entropy.h"
#include "tensor/ops/pointwise.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/row_sum.h"

namespace elinvar {

Var cross_entropy(const Var& logits, const Tensor& targets, const CrossEntropyOptions& options) {
  const double smoothing = options.label_smoothing;
  const int64_t ignored = options.ignore_index;
  CrossEntropyResult result = cross_entropy(logits.value(), targets, smoothing, ignored);
  const Tensor total = sum(result.loss);
  result.loss = {};
  return record(total, {logits}, [=, x = logits.value()](const Tensor& dy) mutable {
    return std::vector<Tensor>{cross_entropy_backward(dy, std::move(x), result, smoothing, ignored)};
  });
}

// d = x - target; the loss is the sum of d * d over all elements as one row (NUMERICS.md, rule 11, fma); dx = d * (2
// dy).
Var mse_loss(const Var& x, const Var& target) {
  check(x.shape() == target.shape(), "[mse_loss] shapes {} and {} must be equal", to_string(x.shape()),
        to_string(target.shape()));
  const Tensor d = sub(x.value(), target.value());
  return record(dot(d, d), {x, target}, [x, target, d](const Tensor& dy) {
    const Tensor dx = mul(d, mul(dy, 2.0));
    return std::vector<Tensor>{x.requires_grad() ? dx : Tensor{}, target.requires_grad() ? neg(dx) : Tensor{}};
  });
}

}  // namespace elinvar
