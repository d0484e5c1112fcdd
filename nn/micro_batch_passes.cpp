#include "nn/micro_batch_passes.h"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>

#include "nn/residence.h"
#include "nn/running_statistics.h"
#include "nn/stage.h"
#include "tensor/base/activity.h"
#include "tensor/ops/top1_correct.h"

namespace elinvar {
namespace {

// Both passes; the constructor runs the first and fills a ForwardPass but for batch_statistics.
class Passes {
 public:
  virtual ~Passes() = default;
  virtual void backward(const std::function<void(size_t parameter)>& ready) = 0;
  virtual Tensor take_gradient(size_t parameter) = 0;  // undefined if the loss does not depend on it
};

class WholePasses final : public Passes {
 public:
  WholePasses(const MicroBatchTask& task, ForwardPass& pass) : parameters_(task.network.parameters.list) {
    const Activity activity("forward", static_cast<int>(task.rng.vrank));
    for (Parameter& p : parameters_) p.var.clear_grad();
    Context context{.training = true, .rng = task.rng, .recompute = task.recompute, .group = task.group};
    const ShardedLogits logits = task.network.sharded_logits(task.input, context);
    LossAndTop1 scored = cross_entropy(logits, task.target, task.options);  // checks shapes and ranges of the targets
    loss_ = std::move(scored.loss);
    pass.loss = loss_.value();
    pass.top1 = std::move(scored.top1);
    pass.statistics = std::move(context.statistics);
    pass.segments = std::move(context.segments);
  }
  void backward(const std::function<void(size_t)>& ready) override {
    std::unordered_map<const Var::Node*, size_t> places;
    for (size_t i = 0; i < parameters_.size(); ++i) places.emplace(parameters_[i].var.node().get(), i);
    elinvar::backward(loss_, [&](const Var& leaf) {
      const auto found = places.find(leaf.node().get());
      if (found != places.end()) ready(found->second);
    });
  }
  Tensor take_gradient(size_t parameter) override {
    Var& var = parameters_[parameter].var;
    Tensor gradient = var.grad();
    var.clear_grad();
    return gradient;
  }

 private:
  std::vector<Parameter>& parameters_;
  Var loss_;
};

class PassesBySegment final : public Passes {
 public:
  PassesBySegment(const MicroBatchTask& task, ForwardPass& pass) : passes_(forward(task)) {
    pass.loss = passes_.loss();
    pass.top1 = passes_.top1();
    pass.statistics = passes_.take_statistics();
  }
  void backward(const std::function<void(size_t)>& ready) override { passes_.backward({}, gradients_, ready); }
  Tensor take_gradient(size_t parameter) override { return std::move(gradients_[parameter]); }

 private:
  static SegmentPasses forward(const MicroBatchTask& task) {
    const Activity activity("forward", static_cast<int>(task.rng.vrank));
    const SegmentedNetwork& network = task.residence->network();
    invariant(&network == &task.network, "a residence is of this network");
    return {network,
            {0, network.segments().size()},
            {task.input, task.rng},
            task.target,
            task.options,
            {.recompute = task.recompute, .group = task.group, .residence = task.residence}};
  }
  SegmentPasses passes_;
  std::vector<Tensor> gradients_;
};

}  // namespace

Tensor gradient_of_its_own(Tensor gradient, const Tensor& parameter) {
  if (!gradient.defined()) return Tensor::zeros(parameter.shape(), parameter.dtype(), parameter.device());
  if (!gradient.unique() || !gradient.contiguous()) return gradient.clone();
  return gradient;
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
  const std::vector<Parameter>& parameters = task.network.parameters.list;
  ForwardPass pass;
  const std::unique_ptr<Passes> passes = task.residence ? std::make_unique<PassesBySegment>(task, pass)
                                                        : std::unique_ptr<Passes>(new WholePasses(task, pass));
  pass.batch_statistics = batch_statistics_of(pass.statistics);
  forward(std::move(pass));
  const Activity activity("backward", static_cast<int>(task.rng.vrank));
  std::vector<bool> handed_over(parameters.size());
  const auto hand_over = [&](size_t i) {
    if (handed_over[i] || !parameters[i].computed_here(*task.group)) return;
    handed_over[i] = true;
    gradient(i, gradient_of_its_own(passes->take_gradient(i), parameters[i].var.value()));
  };
  passes->backward([&](size_t i) {
    if (early) hand_over(i);
  });
  for (size_t i = 0; i < parameters.size(); ++i) hand_over(i);  // including those on which the loss does not depend
}

void GradientDelivery::forward(ForwardPass pass, const Mark& since) {
  loss_ = Download(std::move(pass.loss), since);
  top1_ = Download(std::move(pass.top1), since);
  result_.count = count_of(task_.target.own, task_.options.ignore_index);
  result_.statistics = std::move(pass.statistics);
  result_.batch_statistics = std::move(pass.batch_statistics);
  result_.segments = std::move(pass.segments);
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
