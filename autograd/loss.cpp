#include "autograd/loss.h"

#include "autograd/pointwise.h"
#include "autograd/precision.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "tensor/base/check.h"
#include "tensor/graph.h"
#include "tensor/ops/cross_entropy.h"
#include "tensor/ops/cross_entropy_shards.h"
#include "tensor/ops/index.h"
#include "tensor/ops/pointwise.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/row_sum.h"
#include "tensor/ops/top1_correct.h"

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

namespace {

// Returns the matrix by which mixtures multiply logits of that shape.
Tensor moved_by_mixing(const Shape& shape, const Tensor& own, const Tensor& other, const Tensor& own_share,
                       const CrossEntropyOptions& options) {
  const int64_t classes = shape[shape.ndim() - 1], ignored = options.ignore_index;
  const Tensor first = checked_index("cross_entropy", own, classes, ignored).to(Device{}),
               second = checked_index("cross_entropy", other, classes, ignored).to(Device{}),
               share = own_share.to(Device{}).to_contiguous();
  Tensor moved = Tensor::zeros(shape);
  for (int64_t row = 0; row < own.numel(); ++row) {
    const int64_t a = first.data<int64_t>()[row], b = second.data<int64_t>()[row];
    if (a == ignored || b == ignored || a == b) continue;
    const auto c =
        static_cast<float>((1.0 - options.label_smoothing) * (1.0 - static_cast<double>(share.data<float>()[row])));
    moved.data<float>()[row * classes + a] = c;
    moved.data<float>()[row * classes + b] = -c;
  }
  return moved;
}

}  // namespace

Var cross_entropy(const Var& logits, const Targets& targets, const CrossEntropyOptions& options) {
  const Var own = cross_entropy(logits, targets.own, options);  // checks own
  if (!targets.other.defined()) return own;
  const Shape& rows = targets.own.shape();
  check(targets.other.shape() == rows && targets.share.shape() == rows && computed_in(logits.dtype()) == DType::f32 &&
            targets.share.dtype() == DType::f32,
        "[cross_entropy] mixtures need float32 logits, and other targets {} and float32 shares {} like the targets {}",
        to_string(targets.other.shape()), to_string(targets.share.shape()), to_string(rows));
  const auto moved = [shape = logits.shape(), options](std::span<const Tensor> from) {
    return std::vector{moved_by_mixing(shape, from[0], from[1], from[2], options)};
  };
  const Tensor coefficients = derived({targets.own, targets.other, targets.share}, moved)[0];
  return own + sum(logits * Var(coefficients.to(logits.value().device())));
}

Var joined(const ShardedLogits& logits) {
  std::vector<int64_t> extents;
  for (int s = 0; s < logits.shards.count; ++s)
    extents.push_back(shard_of(logits.classes, s, logits.shards.count).count);
  const Var all = gather_from_shards(logits.parts, -1, extents, logits.shards);
  return logits.further.defined() ? concat({all, logits.further}, all.ndim() - 1) : all;
}

LossAndTop1 cross_entropy(const ShardedLogits& logits, const Targets& targets, const CrossEntropyOptions& options) {
  const auto& [parts, shards, classes, further] = logits;
  const double smoothing = options.label_smoothing;
  const int64_t ignored = options.ignore_index;
  check(!further.defined(), "[cross_entropy] logits alone expected, got further outputs {}",
        further.defined() ? to_string(further.shape()) : "");
  check(static_cast<int>(parts.size()) == shards.own().size(), "[cross_entropy] logits of {} shards expected, got {}",
        shards.own().size(), parts.size());
  if (shards.count == 1)
    return {cross_entropy(parts[0], targets, options), top1_correct(parts[0].value(), targets.own, ignored)};
  check(!targets.other.defined(), "[cross_entropy] mixtures of targets need logits in one shard, got {}", shards.count);
  std::vector<Tensor> values, terms;
  std::vector<IndexShard> own;
  for (const Var& part : parts) {
    own.push_back(shard_of(classes, shards.own().begin + static_cast<int>(own.size()), shards.count));
    values.push_back(part.value());
    terms.push_back(cross_entropy_terms(part.value(), targets.own, smoothing, ignored, own.back()));
  }
  const std::vector<Shape> shapes(static_cast<size_t>(shards.count), terms.at(0).shape());
  const std::vector<Tensor> all_terms = shards.group->gather(std::move(terms), shapes);
  check(static_cast<int>(all_terms.size()) == shards.count, "[cross_entropy] numbers of {} shards expected, got {}",
        shards.count, all_terms.size());
  ShardedCrossEntropy all = cross_entropy_of_terms(all_terms, targets.own, classes, smoothing, ignored);
  const Tensor total = sum(all.result.loss);
  all.result.loss = {};
  Var loss = record(total, parts, [=, result = all.result](const Tensor& dy) mutable {
    std::vector<Tensor> grads;
    for (size_t i = 0; i < values.size(); ++i)
      grads.push_back(cross_entropy_shard_backward(dy, std::move(values[i]), result, smoothing, ignored, own[i]));
    return grads;
  });
  return {std::move(loss), std::move(all.top1)};
}

// d = x - target; the loss is the sum of d * d over all elements as one row (NUMERICS.md, rule 11, fma); dx = d * (2
// dy).
Var mse_loss(const Var& given, const Var& target) {
  const Var x = widened(given);
  check(x.shape() == target.shape(), "[mse_loss] shapes {} and {} must be equal", to_string(x.shape()),
        to_string(target.shape()));
  const Tensor d = sub(x.value(), widened(target).value());
  return record(dot(d, d), {x, target}, [x, target, d](const Tensor& dy) {
    const Tensor dx = mul(d, mul(dy, 2.0));
    return std::vector<Tensor>{x.requires_grad() ? dx : Tensor{}, target.requires_grad() ? neg(dx) : Tensor{}};
  });
}

}  // namespace elinvar
