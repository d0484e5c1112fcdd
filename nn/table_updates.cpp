#include "nn/table_updates.h"

#include "nn/optimizer.h"
#include "nn/touched_rows.h"
#include "tensor/base/check.h"
#include "tensor/ops/embedding.h"

namespace elinvar {

TableUpdates::TableUpdates(const OptimizerConfig& config, const Parameters& parameters, const Offload& offload)
    : rule_(make_table_rule(config)),
      lr_factor_(config.sparse_lr > 0.0 && config.lr > 0.0 ? config.sparse_lr / config.lr : 1.0) {
  for (size_t i = 0; i < parameters.list.size(); ++i) {
    const Parameter& p = parameters.list[i];
    if (!p.sparse()) continue;
    Table& table = tables_.emplace_back(Table{.parameter = i, .name = p.name, .slots = {}});
    for (size_t k = 0; k < rule_->slots().size(); ++k)
      table.slots.push_back(offload.zeros(rule_->slot_shape(p.var.shape()), p.var.dtype(), p.var.value().device()));
  }
}

void TableUpdates::step(Parameters& parameters, std::span<const Tensor> gradients, double lr, int64_t step,
                        double gradient_scale) {
  if (tables_.empty()) return;
  const GatherSums none;
  const Offload here;
  UpdatePieces u{.parameters = parameters,
                 .lr = lr * lr_factor_,
                 .step = step,
                 .gradient_scale = gradient_scale,
                 .gather = none,
                 .offload = here};
  std::vector<std::vector<Tensor>> slots(rule_->slots().size());
  for (const Table& table : tables_) {
    const Parameter& p = parameters.list[table.parameter];
    p.touched->bind(p.var.value());
    const Tensor& rows = p.touched->rows();
    check(gradients[table.parameter].shape() == p.var.grad_shape(), "[optimizer] the gradient of {} must have shape {}",
          p.name, to_string(p.var.grad_shape()));
    u.add(table.parameter, p.touched->read(p.var.value()), gradients[table.parameter].slice(0, 0, rows.numel()));
    for (size_t k = 0; k < slots.size(); ++k)
      slots[k].push_back(embedding(table.slots[k], rows).to(p.var.value().device()));
  }
  rule_->update(u, slots);
  for (size_t i = 0; i < tables_.size(); ++i) {
    Table& table = tables_[i];
    Parameter& p = parameters.list[table.parameter];
    const Tensor& rows = p.touched->rows();
    put_rows(u.p[i], rows, p.var.mutable_value());
    for (size_t k = 0; k < slots.size(); ++k) put_rows(slots[k][i].to(table.slots[k].device()), rows, table.slots[k]);
    p.touched->commit();
  }
}

void TableUpdates::add_state(StateDict& all) const {
  for (const Table& table : tables_)
    for (size_t k = 0; k < table.slots.size(); ++k) all.emplace(table.name + "." + rule_->slots()[k], table.slots[k]);
}

}  // namespace elinvar
