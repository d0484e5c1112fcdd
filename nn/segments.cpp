#include "nn/segments.h"

#include <utility>

#include "nn/residence.h"
#include "tensor/base/check.h"

namespace elinvar {

ShardedLogits SegmentedNetwork::sharded_logits(const Tensor& input, Context& context) const {
  check(!context.residence || !context.training,
        "[segments] SegmentPasses trains with a Residence, forward() does not");
  Residual x = Var(input);
  const size_t last = segments_.size() - 1;
  for (size_t i = 0; i < last; ++i) {
    const SegmentInUse in_use(context.residence, i, i + 1);
    RunningSegment running(context);
    x = segments_[i].run(std::move(x), context);
    running.ended(x.shape());
    if (context.residence) x = Var(Var(x).value());  // nothing is left to compute from the segment's parameters
  }
  const SegmentInUse in_use(context.residence, last, std::nullopt);
  RunningSegment running(context);
  ShardedLogits logits = head(std::move(x), context);
  running.ended();
  if (context.residence)
    for (const Var& part : logits.parts) part.value();
  if (context.residence && logits.further.defined()) logits.further.value();
  return logits;
}

void SegmentedNetwork::add_segment(std::string name, std::function<Residual(Residual, Context&)> run,
                                   const std::vector<std::string>& shared, std::string kind) {
  Segment& segment =
      segments_.emplace_back(Segment{.name = std::move(name), .run = std::move(run), .kind = std::move(kind)});
  const std::vector<Parameter>& list = parameters.list;
  for (size_t i = 0; i < claimed_; ++i)
    for (const std::string& scope : shared)
      if (list[i].name.starts_with(scope + ".")) segment.parameters.push_back(i);
  invariant(shared.empty() || !segment.parameters.empty(), "shared parameters exist");
  while (claimed_ < list.size()) segment.parameters.push_back(claimed_++);
}

}  // namespace elinvar
