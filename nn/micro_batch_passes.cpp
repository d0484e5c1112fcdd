#include "nn/micro_batch_passes.h"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>

#include "nn/residence.h"
#include "nn/running_statistics.h"
#include "nn/stage.h"
#include "tensor/base/activity.h"

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
  WholePasses(const MicroBatchWork& work, ForwardPass& pass) : parameters_(work.network.parameters.list) {
    const Activity activity("forward", static_cast<int>(work.rng.vrank));
    for (Parameter& p : parameters_) p.var.clear_grad();
    Context context{.training = true, .rng = work.rng, .recompute = work.recompute, .group = work.group};
    context.inputs = work.input.further;
    const ShardedLogits output = work.network.sharded_logits(work.input.first, context);
    LossAndTop1 scored = work.task->loss(output, work.target);  // checks shapes and ranges of the targets
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
  PassesBySegment(const MicroBatchWork& work, ForwardPass& pass) : passes_(forward(work)) {
    pass.loss = passes_.loss();
    pass.top1 = passes_.top1();
    pass.statistics = passes_.take_statistics();
    pass.segments = passes_.take_segments();
  }
  void backward(const std::function<void(size_t)>& ready) override { passes_.backward({}, gradients_, ready); }
  Tensor take_gradient(size_t parameter) override { return std::move(gradients_[parameter]); }

 private:
  static SegmentPasses forward(const MicroBatchWork& work) {
    const Activity activity("forward", static_cast<int>(work.rng.vrank));
    const SegmentedNetwork& network = work.residence->network();
    invariant(&network == &work.network, "a residence is of this network");
    return {
        network,
        {0, network.segments().size()},
        {work.input.first, work.rng},
        work.target,
        work.task,
        {.recompute = work.recompute, .group = work.group, .residence = work.residence, .inputs = work.input.further}};
  }
  SegmentPasses passes_;
  std::vector<Tensor> gradients_;
};

}  // namespace

Tensor gradient_of_its_own(Tensor gradient, const Var& parameter) {
  if (!gradient.defined()) return Tensor::zeros(parameter.grad_shape(), parameter.dtype(), parameter.value().device());
  if (!gradient.unique() || !gradient.contiguous()) return gradient.clone();
  return gradient;
}

void run_passes(const MicroBatchWork& work, bool early, const std::function<void(ForwardPass)>& forward,
                const std::function<void(size_t, Tensor)>& gradient) {
  const std::vector<Parameter>& parameters = work.network.parameters.list;
  ForwardPass pass;
  const std::unique_ptr<Passes> passes = work.residence ? std::make_unique<PassesBySegment>(work, pass)
                                                        : std::unique_ptr<Passes>(new WholePasses(work, pass));
  pass.batch_statistics = batch_statistics_of(pass.statistics);
  forward(std::move(pass));
  const Activity activity("backward", static_cast<int>(work.rng.vrank));
  std::vector<bool> handed_over(parameters.size());
  const auto hand_over = [&](size_t i) {
    if (handed_over[i] || !parameters[i].computed_here(*work.group)) return;
    handed_over[i] = true;
    gradient(i, gradient_of_its_own(passes->take_gradient(i), parameters[i].var));
  };
  passes->backward([&](size_t i) {
    if (early) hand_over(i);
  });
  for (size_t i = 0; i < parameters.size(); ++i) hand_over(i);  // including those on which the loss does not depend
}

void GradientDelivery::forward(ForwardPass pass, const Mark& since) {
  loss_ = Download(std::move(pass.loss), since);
  top1_ = Download(std::move(pass.top1), since);
  result_.count = work_.task->count(work_.target);
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
