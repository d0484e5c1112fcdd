#include "nn/sliced_optimizer.h"

#include <algorithm>

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
                                 const Offload& offload)
    : updates_(config) {
  check_can_slice(config);
  rule_ = make_update_rule(config);
  for (const Parameter& p : parameters.list) sparse_.push_back(p.sparse());
  state_ = SlicedTensors(parameters, rule_->slots(), {}, offload);
  if (const UpdateRule* const rule = updates_.rule())
    table_state_ = SlicedTensors(parameters, rule->slots(), {}, offload, [rule](const Shape& shape) {
      return shape.ndim() == 2 ? rule->slot_shape(shape) : shape;
    });
  keep(std::move(slices));
}

void SlicedOptimizer::keep(std::vector<Slice> slices) {
  std::vector<Slice> dense, of_tables;
  for (const Slice& slice : slices) {
    const auto t = static_cast<size_t>(slice.tensor);
    (t < sparse_.size() && sparse_[t] ? of_tables : dense).push_back(slice);
  }
  state_.keep(std::move(dense));
  if (updates_.rule() != nullptr) table_state_.keep(std::move(of_tables));
  slices_ = std::move(slices);
}

std::vector<SlotSlice> SlicedOptimizer::slots() const {
  std::vector<SlotSlice> slots = state_.slots();
  for (SlotSlice& slot : table_state_.slots()) slots.push_back(std::move(slot));
  return slots;
}

std::optional<std::vector<Tensor>> SlicedOptimizer::slots_of(const Slice& slice) {
  SlicedTensors& state = of_table(slice) ? table_state_ : state_;
  const auto found = std::ranges::find(state.slices(), slice);
  if (found == state.slices().end()) return std::nullopt;
  std::vector<Tensor> slots;
  for (const std::vector<Tensor>& slot : state.tensors())
    slots.push_back(slot[static_cast<size_t>(found - state.slices().begin())]);
  return slots;
}

void SlicedOptimizer::step(Parameters& parameters, std::span<const Tensor> gradients, double lr, int64_t step,
                           double gradient_scale, const GatherSums& gather, std::span<const Tensor> values,
                           std::span<const Tensor> of_tables) {
  check(gradients.size() == state_.slices().size(), "[optimizer] {} slices but {} gradients", state_.slices().size(),
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
  std::vector<TablePart> parts;
  size_t dense = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Slice& slice = slices()[i];
    if (!of_table(slice)) {
      u.add(static_cast<size_t>(slice.tensor), pieces[i], gradients[dense++]);
      continue;
    }
    const Shape& shape = parameters.list[static_cast<size_t>(slice.tensor)].var.shape();
    const int64_t channels = shape.numel() / shape[0];
    TablePart& part = parts.emplace_back(TablePart{.parameter = static_cast<size_t>(slice.tensor),
                                                   .first = slice.begin / channels,
                                                   .values = pieces[i].reshape({slice.numel() / channels, channels}),
                                                   .slots = *slots_of(slice)});
    for (Tensor& slot : part.slots) slot = slot.reshape({part.values.dim(0), slot.numel() / part.values.dim(0)});
  }
  rule_->update(u, state_.tensors());
  updates_.step(parameters, parts, of_tables, lr, step, gradient_scale);
}

}  // namespace elinvar
