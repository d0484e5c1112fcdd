#include "nn/micro_batch.h"

#include "nn/micro_batch_passes.h"
#include "tensor/base/check.h"
#include "tensor/ops/pointwise.h"

namespace elinvar {

MicroBatchResult micro_batch_gradient(Network& network, const Inputs& input, const Targets& target, const Task& task,
                                      const Rng& rng, const Recompute& recompute, const MicroBatchProgress& progress,
                                      ShardGroup& group, Residence* residence) {
  const MicroBatchWork work{network, input, target, task, rng, recompute, &group, residence};
  GradientDelivery delivery(work, progress);
  run_passes(
      work, /*early=*/progress.gradient != nullptr, [&](ForwardPass pass) { delivery.forward(std::move(pass)); },
      [&](size_t i, Tensor gradient) { delivery.gradient(i, std::move(gradient)); });
  return delivery.finish();
}

Tensor predict(const Network& network, std::span<const Inputs> views, ShardGroup& group, Residence* residence,
               std::vector<ExpertLoad>* loads) {
  check(!views.empty(), "[predict] at least one view of the samples expected");
  const NoGrad constant;
  Context context;
  context.group = &group;
  context.residence = residence;
  const auto output = [&](const Inputs& view) {
    context.inputs = view.further;
    const Tensor result = network.forward(view.first, context).value();
    if (loads) add_loads(*loads, context.loads);
    context.loads.clear();
    return result;
  };
  Tensor sum = output(views[0]);
  for (const Inputs& view : views.subspan(1)) sum = add(sum, output(view));
  return views.size() > 1 ? div(sum, static_cast<double>(views.size())) : sum;
}

BatchScore evaluate(const Tensor& output, const Targets& targets, const Task& task) {
  const NoGrad constant;
  const LossAndTop1 of_output = task->loss({.parts = {output}, .classes = output.dim(-1)}, targets);
  Download loss(of_output.loss.value()), top1(of_output.top1);
  BatchScore score{.loss_sum = loss.wait().item(), .count = task->count(targets), .correct = correct_of(top1.wait())};
  task->judge(output, targets, score);
  return score;
}

}  // namespace elinvar
