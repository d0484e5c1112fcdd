#include "nn/table_updates.h"

#include <algorithm>

#include "nn/optimizer.h"
#include "nn/touched_rows.h"
#include "tensor/base/check.h"
#include "tensor/ops/embedding.h"

namespace elinvar {

TableUpdates::TableUpdates(const OptimizerConfig& config)
    : rule_(make_table_rule(config)),
      lr_factor_(config.sparse_lr > 0.0 && config.lr > 0.0 ? config.sparse_lr / config.lr : 1.0) {}

void TableUpdates::step(const Parameters& parameters, std::span<TablePart> parts, std::span<const Tensor> gradients,
                        double lr, int64_t step, double gradient_scale) const {
  if (parts.empty()) return;
  const GatherSums none;
  const Offload here;
  UpdatePieces u{.parameters = parameters,
                 .lr = lr * lr_factor_,
                 .step = step,
                 .gradient_scale = gradient_scale,
                 .gather = none,
                 .offload = here};
  std::vector<std::vector<Tensor>> slots(rule_->slots().size());
  std::vector<TablePart*> updated;
  for (TablePart& part : parts) {
    const Parameter& p = parameters.list[part.parameter];
    const Tensor& gradient = gradients[part.parameter];
    p.touched->bind(p.var.value());
    check(gradient.shape() == p.var.grad_shape(), "[optimizer] the gradient of {} must have shape {}, got {}", p.name,
          to_string(p.var.grad_shape()), to_string(gradient.shape()));
    const auto [begin, end] = p.touched->places_in(part.first, part.values.dim(0));
    if (begin == end) continue;
    u.add(part.parameter, p.touched->read(part.values, part.first), gradient.slice(0, begin, end));
    const Tensor rows = p.touched->rows_in(part.first, part.values.dim(0));
    for (size_t k = 0; k < slots.size(); ++k)
      slots[k].push_back(embedding(part.slots[k], rows).to(part.values.device()));
    updated.push_back(&part);
  }
  if (updated.empty()) return;
  rule_->update(u, slots);
  for (size_t i = 0; i < updated.size(); ++i) {
    TablePart& part = *updated[i];
    const Tensor rows = parameters.list[part.parameter].touched->rows_in(part.first, part.values.dim(0));
    put_rows(u.p[i], rows, part.values);
    for (size_t k = 0; k < slots.size(); ++k) put_rows(slots[k][i].to(part.slots[k].device()), rows, part.slots[k]);
  }
}

}  // namespace elinvar
