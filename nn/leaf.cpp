#include "nn/leaf.h"

#include "tensor/check.h"
#include "tensor/ops/pointwise.h"

namespace elinvar {

namespace {

// Counts the targets that are not ignored, and among them those that the logits rank first.
template <class Index>
void count(const Tensor& logits, const Tensor& target, int64_t ignored, LeafResult& result) {
  const Tensor x = logits.to_contiguous(), t = target.to_contiguous();
  const int64_t classes = x.dim(-1), rows = x.numel() / classes;
  std::vector<uint8_t> hit(static_cast<size_t>(rows));  // 0 ignored, 1 wrong, 2 right
  visit_float(x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const T* logit = x.data<T>();
    const Index* wanted = t.data<Index>();
    cpu_stream().parallel_for(rows, 16384 / classes + 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        if (wanted[r] == ignored) continue;
        const T *row = logit + r * classes, best = row[wanted[r]];
        // First of the largest: nothing before it is as large, nothing after it is larger; a NaN is never right.
        bool first = best == best;
        for (int64_t c = 0; c < classes; ++c) first &= c < wanted[r] ? row[c] < best : !(best < row[c]);
        hit[static_cast<size_t>(r)] = first ? 2 : 1;
      }
    });
  });
  for (const uint8_t h : hit) {
    result.count += h != 0;
    result.correct += h == 2;
  }
}

Var loss_of(const Var& logits, const Tensor& target, const LossOptions& options, LeafResult& result) {
  const Var loss = cross_entropy(logits, target, options);  // checks shapes and ranges of the targets
  result.loss_sum = loss.value().item();
  if (target.dtype() == DType::i32) count<int32_t>(logits.value(), target, options.ignore_index, result);
  else count<int64_t>(logits.value(), target, options.ignore_index, result);
  return loss;
}

}  // namespace

LeafResult leaf(Network& network, const Tensor& input, const Tensor& target, const LossOptions& options, const Rng& rng,
                bool recompute) {
  LeafResult result;
  std::vector<Parameter>& parameters = network.parameters.list;
  for (Parameter& p : parameters) p.var.clear_grad();
  Context context{.training = true, .rng = rng, .statistics = {}, .recompute = recompute};
  backward(loss_of(network.forward(input, context), target, options, result));
  result.statistics = std::move(context.statistics);
  result.gradients.reserve(parameters.size());
  for (Parameter& p : parameters) {
    const Tensor& value = p.var.value();
    Tensor gradient = p.var.grad();
    p.var.clear_grad();
    if (!gradient.defined()) gradient = Tensor::zeros(value.shape(), value.dtype(), value.device());
    // Whoever adds leaves up writes into them, so none may share its elements with another.
    else if (!gradient.unique() || !gradient.contiguous()) gradient = gradient.clone();
    result.gradients.push_back(std::move(gradient));
  }
  return result;
}

LeafResult evaluate(const Network& network, std::span<const Tensor> views, const Tensor& target,
                    const LossOptions& options) {
  check(!views.empty(), "[evaluate] at least one view of the samples expected");
  const NoGrad constant;
  Context context;
  Tensor logits = network.forward(views[0], context).value();
  for (const Tensor& view : views.subspan(1)) logits = add(logits, network.forward(view, context).value());
  if (views.size() > 1) logits = div(logits, static_cast<double>(views.size()));
  LeafResult result;
  loss_of(logits, target, options, result);
  return result;
}

}  // namespace elinvar
