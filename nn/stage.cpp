#include "nn/stage.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

#include "nn/residence.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

Tensor without_elements(const Tensor& x) { return Tensor::absent(x.shape(), x.dtype(), x.device()); }

// A leaf keeps its value. Where inputs are stored elsewhere, it has none, and its gradient is that of the value.
Var with_value(const Var& leaf, Tensor value) {
  if (leaf.value().resident()) return leaf;
  return record(std::move(value), {leaf}, [](Tensor dy) { return std::vector<Tensor>{std::move(dy)}; });
}

}  // namespace

SegmentPasses::SegmentPasses(const SegmentedNetwork& network, SegmentRange range, const Boundary& from,
                             const Targets& targets, const Task& task, const Options& options)
    : network_(network),
      context_{.training = true,
               .rng = from.rng,
               .recompute = options.recompute,
               .group = options.group,
               .residence = options.residence,
               .inputs = options.inputs} {
  const size_t segments = network.segments().size();
  check(range.begin < range.end && range.end <= segments, "[stage] segments {} to {} of {}", range.begin, range.end,
        segments);
  invariant(!options.residence || &options.residence->network() == &network, "a residence is of this network");
  // Between the passes a segment's parameters may be absent, so no record goes over more than one.
  const size_t length = options.residence ? 1 : range.end - range.begin;
  Tensor value = from.value;
  bool needs_gradient = range.begin > 0;
  for (size_t begin = range.begin; begin < range.end; begin += length) {
    // The last segment's gradient is the first to be computed.
    const SegmentInUse in_use(options.residence, begin, std::min(begin + 1, range.end - 1));
    const SegmentRange part{begin, begin + length};
    if (!parts_.empty()) parts_.back().result = Var(parts_.back().result.node());  // the value is not needed
    const Var leaf =
        options.recompute.inputs && needs_gradient ? Var(without_elements(value), true) : Var(value, needs_gradient);
    const Var result = forward(part, with_value(leaf, std::move(value)), targets, task);
    parts_.push_back({part, leaf, result});
    value = result.value();  // computes what is deferred
    needs_gradient = result.requires_grad();
  }
}

Var SegmentPasses::forward(SegmentRange range, const Var& from, const Targets& targets, const Task& task) {
  const std::vector<Segment>& segments = network_.segments();
  Residual x = from;
  for (size_t i = range.begin; i < std::min(range.end, segments.size() - 1); ++i) {
    RunningSegment running(context_);
    x = segments[i].run(std::move(x), context_);
    running.ended(x.shape());
  }
  if (range.end < segments.size()) return x;
  RunningSegment running(context_);
  LossAndTop1 scored = task->loss(network_.head(std::move(x), context_), targets);
  top1_ = std::move(scored.top1);
  running.ended();
  return scored.loss;
}

Tensor SegmentPasses::backward(Tensor dy, std::vector<Tensor>& gradients, const std::function<void(size_t)>& ready) {
  invariant(!parts_.empty(), "the backward pass runs once");
  const Var& result = parts_.back().result;
  if (!dy.defined()) dy = Tensor::full(result.shape(), 1.0, result.dtype(), result.value().device());
  gradients.resize(network_.parameters.list.size());
  while (!parts_.empty()) {
    Part part = std::move(parts_.back());
    parts_.pop_back();
    const SegmentInUse in_use(context_.residence, part.range.begin,
                              parts_.empty() ? std::nullopt : std::optional(parts_.back().range.begin));
    sweep(part, std::move(dy), gradients, ready);
    dy = part.from.grad();
  }
  return dy;
}

bool SegmentPasses::awaits(size_t parameter) const {
  return std::ranges::any_of(parts_, [&](const Part& part) {
    return std::ranges::any_of(
        std::span(network_.segments()).subspan(part.range.begin, part.range.end - part.range.begin),
        [&](const Segment& s) { return std::ranges::binary_search(s.parameters, parameter); });
  });
}

void SegmentPasses::sweep(Part& part, Tensor dy, std::vector<Tensor>& gradients,
                          const std::function<void(size_t)>& ready) {
  const Var result(part.result.node());  // without the tensor, which no gradient may need
  part.result = {};
  const std::vector<Parameter>& list = network_.parameters.list;
  std::unordered_map<const Var::Node*, size_t> read;
  for (size_t i = part.range.begin; i < part.range.end; ++i)
    for (const size_t p : network_.segments()[i].parameters) read.emplace(list[p].var.node().get(), p);
  for (const auto& [node, p] : read) Var(list[p].var).set_grad(std::move(gradients[p]));
  const auto take = [&](size_t p) {
    Var parameter = list[p].var;
    gradients[p] = parameter.grad();
    parameter.clear_grad();
  };
  if (result.requires_grad() && dy.defined())
    backward_part(result, std::move(dy), [&](const Var& leaf) {
      const auto found = read.find(leaf.node().get());
      if (found == read.end()) return;  // it is the value of the segment before
      const size_t p = found->second;
      take(p);
      if (ready && !awaits(p)) ready(p);
      read.erase(found);
    });
  std::set<size_t> others;  // the part reads them, but gives no gradient
  for (const auto& [node, p] : read) others.insert(p);
  for (const size_t p : others) {
    take(p);
    if (ready && !awaits(p)) ready(p);
  }
}

}  // namespace elinvar
