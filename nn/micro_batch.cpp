#include "nn/micro_batch.h"

#include "nn/micro_batch_passes.h"
#include "tensor/base/check.h"
#include "tensor/ops/top1_correct.h"
#include "tensor/ops/pointwise.h"

namespace elinvar {

MicroBatchResult micro_batch_gradient(Network& network, const Tensor& input, const Targets& target,
                                      const LossOptions& options, const Rng& rng, const Recompute& recompute,
                                      const MicroBatchProgress& progress, ShardGroup& group, Residence* residence) {
  const MicroBatchTask task{network, input, target, options, rng, recompute, &group, residence};
  GradientDelivery delivery(task, progress);
  run_passes(
      task, /*early=*/progress.gradient != nullptr, [&](ForwardPass pass) { delivery.forward(std::move(pass)); },
      [&](size_t i, Tensor gradient) { delivery.gradient(i, std::move(gradient)); });
  return delivery.finish();
}

Tensor predict(const Network& network, std::span<const Tensor> views, ShardGroup& group, Residence* residence) {
  check(!views.empty(), "[predict] at least one view of the samples expected");
  const NoGrad constant;
  Context context;
  context.group = &group;
  context.residence = residence;
  Tensor logits = network.forward(views[0], context).value();
  for (const Tensor& view : views.subspan(1)) logits = add(logits, network.forward(view, context).value());
  return views.size() > 1 ? div(logits, static_cast<double>(views.size())) : logits;
}

MicroBatchResult evaluate(const Tensor& logits, const Tensor& target, const LossOptions& options) {
  const NoGrad constant;
  Download loss(cross_entropy(logits, target, options).value()),
      top1(top1_correct(logits, target, options.ignore_index));
  return {.loss_sum = loss.wait().item(),
          .count = count_of(target, options.ignore_index),
          .correct = correct_of(top1.wait())};
}

}  // namespace elinvar
