#include "nn/micro_batch_passes.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "nn/running_statistics.h"
#include "tensor/base/activity.h"
#include "tensor/ops/top1_correct.h"

namespace elinvar {

Tensor gradient_of_its_own(Tensor gradient, const Tensor& parameter) {
  if (!gradient.defined()) return Tensor::zeros(parameter.shape(), parameter.dtype(), parameter.device());
  if (!gradient.unique() || !gradient.contiguous()) return gradient.clone();
  return gradient;
}

bool computed_by(const ShardGroup& group, const Parameter& parameter) {
  if (parameter.cut.shards == 1) return true;
  const ShardRange own = group.own(parameter.cut.shards);
  return own.begin <= parameter.shard && parameter.shard < own.end;
}

int64_t count_of(const Tensor& targets, int64_t ignored) {
  const Tensor all = targets.to(Device{}).to_contiguous();
  const auto other = [ignored](auto target) { return target != ignored; };
  if (all.dtype() == DType::i32) return std::ranges::count_if(all.span<int32_t>(), other);
  return std::ranges::count_if(all.span<int64_t>(), other);
}

int64_t correct_of(const Tensor& top1) {
  return std::ranges::count(top1.span<uint8_t>(), static_cast<uint8_t>(Top1::correct));
}

void run_passes(const MicroBatchTask& task, bool early, const std::function<void(ForwardPass)>& forward,
                const std::function<void(size_t, Tensor)>& gradient) {
  std::vector<Parameter>& parameters = task.network.parameters.list;
  for (Parameter& p : parameters) p.var.clear_grad();
  Context context{
      .training = true, .rng = task.rng, .statistics = {}, .recompute = task.recompute, .group = task.group};
  Var loss;
  ForwardPass pass;
  {
    const Activity activity("forward");
    const ShardedLogits logits = task.network.sharded_logits(task.input, context);
    LossAndTop1 scored = cross_entropy(logits, task.target, task.options);  // checks shapes and ranges of the targets
    loss = std::move(scored.loss);
    pass.loss = loss.value();
    pass.top1 = std::move(scored.top1);
  }
  pass.statistics = std::move(context.statistics);
  pass.batch_statistics = batch_statistics_of(pass.statistics);
  forward(std::move(pass));
  const Activity activity("backward");
  std::unordered_map<const Var::Node*, size_t> places;  // indices of the gradients to pass on
  if (early)
    for (size_t i = 0; i < parameters.size(); ++i) places.emplace(parameters[i].var.node().get(), i);
  std::vector<bool> handed_over(parameters.size());
  const auto hand_over = [&](size_t i) {
    if (handed_over[i] || !computed_by(*task.group, parameters[i])) return;
    handed_over[i] = true;
    Var& parameter = parameters[i].var;
    Tensor own = parameter.grad();
    parameter.clear_grad();
    gradient(i, gradient_of_its_own(std::move(own), parameter.value()));
  };
  backward(loss, [&](const Var& ready) {
    const auto found = places.find(ready.node().get());
    if (found != places.end()) hand_over(found->second);
  });
  for (size_t i = 0; i < parameters.size(); ++i) hand_over(i);  // including those on which the loss does not depend
}

void GradientDelivery::forward(ForwardPass pass, const Mark& since) {
  loss_ = Download(std::move(pass.loss), since);
  top1_ = Download(std::move(pass.top1), since);
  result_.count = count_of(task_.target.own, task_.options.ignore_index);
  result_.statistics = std::move(pass.statistics);
  result_.batch_statistics = std::move(pass.batch_statistics);
  result_.statistics_since = since;
  if (progress_.forward) progress_.forward(result_);
}

void GradientDelivery::gradient(size_t parameter, Tensor gradient, const Mark& since) {
  if (progress_.gradient) return progress_.gradient(parameter, std::move(gradient), since);
  result_.gradients.resize(std::max(result_.gradients.size(), parameter + 1));
  result_.gradients[parameter] = std::move(gradient);
}

MicroBatchResult GradientDelivery::finish() {
  result_.loss_sum = loss_.wait().item();
  result_.correct = correct_of(top1_.wait());
  return std::move(result_);
}

}  // namespace elinvar
