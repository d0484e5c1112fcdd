#include "nn/optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "nn/table_updates.h"
#include "nn/touched_rows.h"
#include "nn/update_rule.h"
#include "tensor/base/check.h"
#include "tensor/base/registry.h"
#include "tensor/base/setting.h"
#include "tensor/base/spelling.h"
#include "tensor/ops/copy.h"

namespace elinvar {
namespace {

// An optimiser of a built-in kind.
class WholeOptimizer final : public Optimizer {
 public:
  WholeOptimizer(std::unique_ptr<UpdateRule> rule, const OptimizerConfig& config, const Parameters& parameters,
                 Offload offload)
      : rule_(std::move(rule)),
        offload_(std::move(offload)),
        names_(rule_->slots()),
        slots_(names_.size()),
        updates_(config) {
    for (size_t i = 0; i < parameters.list.size(); ++i) {
      const Parameter& p = parameters.list[i];
      if (p.sparse()) {
        add_table(i, p);
        continue;
      }
      dense_.push_back(i);
      dense_names_.push_back(p.name);
      for (std::vector<Tensor>& slot : slots_)
        slot.push_back(offload_.zeros(p.var.shape(), p.var.dtype(), p.var.value().device()));
    }
  }

  void step(Parameters& parameters, std::span<const Tensor> gradients, double lr, int64_t step,
            double gradient_scale) override {
    check(gradients.size() == parameters.list.size(), "[optimizer] {} parameters but {} gradients",
          parameters.list.size(), gradients.size());
    const GatherSums none;
    UpdatePieces u{.parameters = parameters,
                   .lr = lr,
                   .step = step,
                   .gradient_scale = gradient_scale,
                   .gather = none,
                   .offload = offload_};
    for (const size_t i : dense_) u.add(i, parameters.list[i].var.mutable_value(), gradients[i]);
    rule_->update(u, slots_);
    for (TablePart& table : tables_) table.values = parameters.list[table.parameter].var.mutable_value();
    updates_.step(parameters, tables_, gradients, lr, step, gradient_scale);
    for (TablePart& table : tables_) table.values = Tensor();
    commit_touched(parameters);
  }

  StateDict state() const override {
    StateDict all;
    for (size_t k = 0; k < names_.size(); ++k)
      for (size_t i = 0; i < dense_names_.size(); ++i) all.emplace(dense_names_[i] + "." + names_[k], slots_[k][i]);
    for (size_t i = 0; i < tables_.size(); ++i)
      for (size_t k = 0; k < tables_[i].slots.size(); ++k)
        all.emplace(table_names_[i] + "." + updates_.rule()->slots()[k], tables_[i].slots[k]);
    return all;
  }

 private:
  void add_table(size_t index, const Parameter& p) {
    TablePart& table = tables_.emplace_back(TablePart{.parameter = index, .values = Tensor(), .slots = {}});
    const UpdateRule& rule = *updates_.rule();
    for (size_t k = 0; k < rule.slots().size(); ++k)
      table.slots.push_back(offload_.zeros(rule.slot_shape(p.var.shape()), p.var.dtype(), p.var.value().device()));
    table_names_.push_back(p.name);
  }

  std::unique_ptr<UpdateRule> rule_;
  Offload offload_;
  std::vector<std::string> names_;
  std::vector<std::vector<Tensor>> slots_;  // of each name, one tensor per dense parameter
  std::vector<size_t> dense_;               // the dense parameters
  std::vector<std::string> dense_names_;
  TableUpdates updates_;
  std::vector<TablePart> tables_;  // the sparse tables, whole, with values during an update
  std::vector<std::string> table_names_;
};

// Built-in kinds have a rule, registered ones make their optimisers.
struct OptimizerMaker {
  std::string name;
  std::function<std::unique_ptr<UpdateRule>(const OptimizerConfig&)> rule = nullptr;
  std::function<std::unique_ptr<Optimizer>(Settings&, const Parameters&)> make = nullptr;
};

Registry<OptimizerMaker>& registry() {
  static Registry<OptimizerMaker> all(
      {{"sgd", [](const OptimizerConfig& c) { return make_sgd(c, /*layerwise=*/false); }},
       {"lars", [](const OptimizerConfig& c) { return make_sgd(c, /*layerwise=*/true); }},
       {"adam", [](const OptimizerConfig& c) { return make_adam(c, /*decoupled=*/false); }},
       {"adamw", [](const OptimizerConfig& c) { return make_adam(c, /*decoupled=*/true); }},
       {"lamb", make_lamb}});
  return all;
}

// The kind of sparse tables.
const std::string& table_kind(const OptimizerConfig& c) { return c.sparse_kind.empty() ? c.kind : c.sparse_kind; }

void check_sparse(const OptimizerConfig& c) {
  check_setting(!c.sparse.empty() || c.sparse_kind.empty(), "optimizer.sparse_kind",
                "has a meaning only with optimizer.sparse");
  check_setting(!c.sparse.empty() || c.sparse_lr == 0.0, "optimizer.sparse_lr",
                "has a meaning only with optimizer.sparse");
  if (c.sparse.empty()) return;
  check_setting(is_built_in_optimizer(c.kind), "optimizer.sparse",
                "cannot be used with kind \"{}\", which the program registers", c.kind);
  check_setting(c.kind != "lars" && c.kind != "lamb", "optimizer.sparse",
                "cannot be used with kind \"{}\", which needs the norms of whole tables", c.kind);
  const std::vector<std::string> kinds = sparse_kinds();
  check_setting(
      std::ranges::find(kinds, table_kind(c)) != kinds.end(), "optimizer.sparse_kind",
      "must be one of \"sgd\", \"adam\", \"adamw\" and \"rowwise_adagrad\" for tables of optimizer.sparse, got "
      "'{}'{}",
      table_kind(c), spelling_hint(table_kind(c), kinds));
  check_setting(table_kind(c) == "sgd" || static_cast<float>(c.eps) > 0.0f, "optimizer.eps",
                "above 0 in float32 is needed by sparse tables of kind \"{}\"", table_kind(c));
  check_setting(c.sparse_lr >= 0.0 && std::isfinite(static_cast<float>(c.sparse_lr)), "optimizer.sparse_lr",
                "must be at least 0 and a float32, got {:g}", c.sparse_lr);
  check_setting(c.sparse_lr == 0.0 || c.lr > 0.0, "optimizer.sparse_lr",
                "follows the schedule of optimizer.lr, which must be above 0");
}

}  // namespace

void check_optimizer(const OptimizerConfig& c) {
  check_setting(registry().find(c.kind) != nullptr, "optimizer.kind", "does not know '{}'{}", c.kind,
                spelling_hint(c.kind, optimizer_kinds()));
  const auto check_range = [](bool ok, const char* key, const char* range, double value) {
    check_setting(ok, key, "must be {}, got {}", range, value);
  };
  check_range(c.lr >= 0.0, "optimizer.lr", "at least 0", c.lr);
  check_range(c.momentum >= 0.0 && c.momentum < 1.0, "optimizer.momentum", "in [0, 1)", c.momentum);
  check_range(c.beta1 >= 0.0 && c.beta1 < 1.0, "optimizer.beta1", "in [0, 1)", c.beta1);
  check_range(c.beta2 >= 0.0 && c.beta2 < 1.0, "optimizer.beta2", "in [0, 1)", c.beta2);
  check_range(c.eps >= 0.0, "optimizer.eps", "at least 0", c.eps);
  const bool divides_by_moments = c.kind == "adam" || c.kind == "adamw" || c.kind == "lamb";
  check_range(!divides_by_moments || static_cast<float>(c.eps) > 0.0f, "optimizer.eps",
              "above 0 in float32, or where a gradient is 0 the update would be 0 / 0", c.eps);
  check_range(c.weight_decay >= 0.0, "optimizer.weight_decay", "at least 0", c.weight_decay);
  check_range(c.trust > 0.0, "optimizer.trust", "positive", c.trust);
  // The kernels take these as float32.
  for (const auto& [key, value] : {std::pair{"optimizer.lr", c.lr},
                                   {"optimizer.eps", c.eps},
                                   {"optimizer.weight_decay", c.weight_decay},
                                   {"optimizer.trust", c.trust}})
    check_setting(std::isfinite(static_cast<float>(value)), key, "must be at most {:g}, the largest float32, got {:g}",
                  std::numeric_limits<float>::max(), value);
  check_range(std::isfinite(c.clip_norm) && c.clip_norm >= 0.0, "optimizer.clip_norm", "at least 0", c.clip_norm);
  check_range(c.ema_decay >= 0.0 && c.ema_decay < 1.0, "optimizer.ema_decay", "in [0, 1)", c.ema_decay);
  check_setting(!c.nesterov || c.momentum > 0.0, "optimizer.nesterov", "needs a momentum above 0");
  check_sparse(c);
}

std::vector<std::string> sparse_kinds() { return {"sgd", "adam", "adamw", "rowwise_adagrad"}; }

std::vector<std::string> optimizer_kinds() { return registry().names(); }

bool is_built_in_optimizer(std::string_view kind) { return registry().built_in(kind); }

void register_optimizer(OptimizerKind kind) {
  registry().add({.name = std::move(kind.name), .make = std::move(kind.make)}, "optimizer");
}

void Optimizer::load(const StateDict& from) {
  StateDict to = state();
  for (const auto& [name, tensor] : from)
    check(to.contains(name), "[optimizer] the state holds {}, which this optimizer does not keep", name);
  for (auto& [name, tensor] : to) {
    const auto found = from.find(name);
    check(found != from.end(), "[optimizer] the state lacks {}", name);
    const Tensor& source = found->second;
    check(source.shape() == tensor.shape() && source.dtype() == tensor.dtype(),
          "[optimizer] {} must be {} of shape {}, the state holds {} of shape {}", name, name_of(tensor.dtype()),
          to_string(tensor.shape()), name_of(source.dtype()), to_string(source.shape()));
  }
  for (auto& [name, tensor] : to) copy(from.at(name), tensor);
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, const Parameters& parameters,
                                          OptimizerConfig* resolved, const Offload& offload) {
  check_optimizer(config);
  OptimizerConfig complete = config;
  const OptimizerMaker& kind = *registry().find(config.kind);
  std::unique_ptr<Optimizer> optimizer;
  if (kind.rule) {
    optimizer = std::make_unique<WholeOptimizer>(kind.rule(config), config, parameters, offload);
  } else {
    check_setting(offload.to == Offload::To::none, "optimizer.kind",
                  "= '{}' is a kind that the program registers, which decides itself where its state lies; leave out "
                  "--offload",
                  config.kind);
    Settings settings(config.own, "optimizer", &complete.own);
    optimizer = kind.make(settings, parameters);
    settings.finish();
    check(optimizer != nullptr, "[optimizer] kind '{}' made no optimizer", config.kind);
  }
  if (resolved != nullptr) *resolved = std::move(complete);
  return optimizer;
}

std::unique_ptr<UpdateRule> make_table_rule(const OptimizerConfig& config) {
  if (config.sparse.empty()) return nullptr;
  if (table_kind(config) == "rowwise_adagrad") return make_rowwise_adagrad(config);
  OptimizerConfig of_tables = config;
  of_tables.kind = table_kind(config);
  return make_update_rule(of_tables);
}

std::unique_ptr<UpdateRule> make_update_rule(const OptimizerConfig& config) {
  check_optimizer(config);
  const OptimizerMaker& kind = *registry().find(config.kind);
  return kind.rule ? kind.rule(config) : nullptr;
}

}  // namespace elinvar
