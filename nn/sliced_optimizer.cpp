#include "nn/sliced_optimizer.h"

#include "tensor/base/check.h"
#include "tensor/base/setting.h"

namespace elinvar {

void check_can_slice(const OptimizerConfig& config) {
  check_optimizer(config);
  check_setting(is_built_in_optimizer(config.kind), "optimizer.kind",
                "= '{}' is a kind that the program registers, whose state cannot be divided among workers; leave out "
                "--arrangement",
                config.kind);
}

SlicedOptimizer::SlicedOptimizer(const OptimizerConfig& config, const Parameters& parameters, std::vector<Slice> slices,
                                 const Offload& offload) {
  check_can_slice(config);
  rule_ = make_update_rule(config);
  state_ = SlicedTensors(parameters, rule_->slots(), std::move(slices), offload);
}

void SlicedOptimizer::step(Parameters& parameters, std::span<const Tensor> gradients, double lr, int64_t step,
                           double gradient_scale, const GatherSums& gather, std::span<const Tensor> values) {
  check(gradients.size() == slices().size(), "[optimizer] {} slices but {} gradients", slices().size(),
        gradients.size());
  check(gather || !has_trust_ratio(), "[optimizer] trust ratios need a function that gathers sums");
  check(values.empty() || values.size() == slices().size(), "[optimizer] {} slices but values of {}", slices().size(),
        values.size());
  UpdatePieces u{.parameters = parameters,
                 .lr = lr,
                 .step = step,
                 .gradient_scale = gradient_scale,
                 .gather = gather,
                 .offload = state_.offload()};
  const std::vector<Tensor> pieces =
      values.empty() ? views_of(parameters, slices()) : std::vector<Tensor>(values.begin(), values.end());
  for (size_t i = 0; i < pieces.size(); ++i) u.add(static_cast<size_t>(slices()[i].tensor), pieces[i], gradients[i]);
  rule_->update(u, state_.tensors());
}

}  // namespace elinvar
