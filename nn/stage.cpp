#include "nn/stage.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "tensor/base/check.h"

namespace elinvar {

SegmentPasses::SegmentPasses(const SegmentedNetwork& network, SegmentRange range, const Boundary& from,
                             const Targets& targets, const LossOptions& loss, const Options& options)
    : network_(network),
      range_(range),
      context_{.training = true, .rng = from.rng, .recompute = options.recompute, .group = options.group},
      from_(from.value, /*requires_grad=*/range.begin > 0) {
  const std::vector<Segment>& segments = network.segments();
  check(range.begin < range.end && range.end <= segments.size(), "[stage] segments {} to {} of {}", range.begin,
        range.end, segments.size());
  Residual x = from_;
  for (size_t i = range.begin; i < std::min(range.end, segments.size() - 1); ++i)
    x = segments[i].run(std::move(x), context_);
  if (range.end < segments.size()) {
    result_ = x;
    return;
  }
  LossAndTop1 scored = cross_entropy(network.head(std::move(x), context_), targets, loss);
  result_ = std::move(scored.loss);
  top1_ = std::move(scored.top1);
}

Tensor SegmentPasses::backward(Tensor dy, std::vector<Tensor>& gradients, const std::function<void(size_t)>& ready) {
  const Var result = std::exchange(result_, {});
  if (!dy.defined()) dy = Tensor::full(result.shape(), 1.0, result.dtype(), result.value().device());
  const std::vector<Parameter>& list = network_.parameters.list;
  gradients.resize(list.size());
  std::unordered_map<const Var::Node*, size_t> read;
  for (size_t i = range_.begin; i < range_.end; ++i)
    for (const size_t p : network_.segments()[i].parameters) read.emplace(list[p].var.node().get(), p);
  for (const auto& [node, p] : read) Var(list[p].var).set_grad(std::move(gradients[p]));
  const auto take = [&](size_t p) {
    Var parameter = list[p].var;
    gradients[p] = parameter.grad();
    parameter.clear_grad();
  };
  if (result.requires_grad())
    backward_part(result, std::move(dy), [&](const Var& leaf) {
      const auto found = read.find(leaf.node().get());
      if (found == read.end()) return;  // it is the value of the segment before
      take(found->second);
      if (ready) ready(found->second);
      read.erase(found);
    });
  for (const auto& [node, p] : read) take(p);  // those that were not reached
  return from_.grad();
}

}  // namespace elinvar
