#include "nn/leaf.h"

#include <algorithm>
#include <unordered_map>

#include "tensor/activity.h"
#include "tensor/check.h"
#include "tensor/ops/hits.h"
#include "tensor/ops/pointwise.h"
#include "tensor/transfer.h"

namespace elinvar {
namespace {

int64_t count_of(const Tensor& targets, int64_t ignored) {
  const Tensor all = targets.to(Device{}).to_contiguous();
  const auto other = [ignored](auto target) { return target != ignored; };
  if (all.dtype() == DType::i32) return std::ranges::count_if(all.span<int32_t>(), other);
  return std::ranges::count_if(all.span<int64_t>(), other);
}

// The numbers that a loss comes to, on their way to the CPU.
class Numbers {
 public:
  Numbers(const Var& logits, const Targets& target, const LossOptions& options)
      : loss_(cross_entropy(logits, target, options)),  // checks shapes and ranges of the targets
        sum_(loss_.value()),
        hits_(hits(logits.value(), target.own, options.ignore_index)) {}

  const Var& loss() const { return loss_; }
  void read(LeafResult& result) {
    result.loss_sum = sum_.wait().item();
    const Tensor found = hits_.wait();
    for (const uint8_t hit : found.span<uint8_t>()) result.correct += hit == static_cast<uint8_t>(Hit::right);
  }

 private:
  Var loss_;
  Download sum_, hits_;
};

Tensor take_gradient(Var& parameter) {
  const Tensor& value = parameter.value();
  Tensor gradient = parameter.grad();
  parameter.clear_grad();
  if (!gradient.defined()) return Tensor::zeros(value.shape(), value.dtype(), value.device());
  // Whoever adds leaves up writes into them, so none may share its elements with another.
  if (!gradient.unique() || !gradient.contiguous()) return gradient.clone();
  return gradient;
}

}  // namespace

LeafResult leaf(Network& network, const Tensor& input, const Targets& target, const LossOptions& options,
                const Rng& rng, bool recompute, const LeafProgress& progress) {
  LeafResult result;
  std::vector<Parameter>& parameters = network.parameters.list;
  for (Parameter& p : parameters) p.var.clear_grad();
  Context context{.training = true, .rng = rng, .statistics = {}, .recompute = recompute};
  Numbers numbers = [&] {
    const Activity activity("forward");
    return Numbers(network.forward(input, context), target, options);
  }();
  result.count = count_of(target.own, options.ignore_index);
  result.statistics = std::move(context.statistics);
  if (progress.forward) progress.forward(result);
  const Activity activity("backward");
  std::unordered_map<const Var::Node*, size_t> places;  // of the gradients that are to be handed over
  if (progress.gradient)
    for (size_t i = 0; i < parameters.size(); ++i) places.emplace(parameters[i].var.node().get(), i);
  std::vector<bool> handed_over(parameters.size());
  const auto hand_over = [&](size_t i) {
    if (handed_over[i]) return;
    handed_over[i] = true;
    progress.gradient(i, take_gradient(parameters[i].var));
  };
  backward(numbers.loss(), [&](const Var& ready) {
    const auto found = places.find(ready.node().get());
    if (found != places.end()) hand_over(found->second);
  });
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (progress.gradient) hand_over(i);  // those that the loss does not depend on
    else result.gradients.push_back(take_gradient(parameters[i].var));
  }
  numbers.read(result);
  return result;
}

Tensor predict(const Network& network, std::span<const Tensor> views) {
  check(!views.empty(), "[predict] at least one view of the samples expected");
  const NoGrad constant;
  Context context;
  Tensor logits = network.forward(views[0], context).value();
  for (const Tensor& view : views.subspan(1)) logits = add(logits, network.forward(view, context).value());
  return views.size() > 1 ? div(logits, static_cast<double>(views.size())) : logits;
}

LeafResult evaluate(const Tensor& logits, const Tensor& target, const LossOptions& options) {
  const NoGrad constant;
  LeafResult result;
  Numbers(logits, target, options).read(result);
  result.count = count_of(target, options.ignore_index);
  return result;
}

}  // namespace elinvar
