#include "nn/segments.h"

#include <utility>

#include "tensor/base/check.h"

namespace elinvar {

ShardedLogits SegmentedNetwork::sharded_logits(const Tensor& input, Context& context) const {
  Residual x = Var(input);
  for (size_t i = 0; i + 1 < segments_.size(); ++i) x = segments_[i].run(std::move(x), context);
  return head(std::move(x), context);
}

void SegmentedNetwork::add_segment(std::string name, std::function<Residual(Residual, Context&)> run,
                                   const std::vector<std::string>& shared) {
  Segment& segment = segments_.emplace_back(Segment{.name = std::move(name), .run = std::move(run)});
  const std::vector<Parameter>& list = parameters.list;
  for (size_t i = 0; i < claimed_; ++i)
    for (const std::string& scope : shared)
      if (list[i].name.starts_with(scope + ".")) segment.parameters.push_back(i);
  invariant(shared.empty() || !segment.parameters.empty(), "shared parameters exist");
  while (claimed_ < list.size()) segment.parameters.push_back(claimed_++);
}

}  // namespace elinvar
