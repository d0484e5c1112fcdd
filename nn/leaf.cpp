#include "nn/leaf.h"

#include "tensor/check.h"
#include "tensor/ops/hits.h"
#include "tensor/ops/pointwise.h"

namespace elinvar {
namespace {

Var loss_of(const Var& logits, const Tensor& target, const LossOptions& options, LeafResult& result) {
  const Var loss = cross_entropy(logits, target, options);  // checks shapes and ranges of the targets
  result.loss_sum = loss.value().item();
  const Tensor found = hits(logits.value(), target, options.ignore_index).to(Device{});
  for (const uint8_t hit : found.span<uint8_t>()) {
    result.count += hit != static_cast<uint8_t>(Hit::ignored);
    result.correct += hit == static_cast<uint8_t>(Hit::right);
  }
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
