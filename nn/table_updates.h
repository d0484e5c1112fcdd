#pragma once
// Updates of sparse tables (nn/touched_rows.h): the touched rows and their state are copied into small tensors, which
// an ordinary update rule changes, and written back. Other rows and their state remain as they are (NUMERICS.md, rule
// 31).
#include <memory>
#include <span>
#include <vector>

#include "nn/offload.h"
#include "nn/update_rule.h"
#include "tensor/state.h"

namespace elinvar {

class TableUpdates {
 public:
  // For the parameters that are sparse. Their state starts at zero, where `offload` says.
  TableUpdates(const OptimizerConfig& config, const Parameters& parameters, const Offload& offload);

  // Updates the touched rows from gradients of all parameters; `lr` is that of dense parameters.
  void step(Parameters& parameters, std::span<const Tensor> gradients, double lr, int64_t step, double gradient_scale);

  // Adds views of the state to `all`, named "<parameter>.<what>".
  void add_state(StateDict& all) const;

 private:
  struct Table {
    size_t parameter;
    std::string name;
    std::vector<Tensor> slots;
  };
  std::unique_ptr<UpdateRule> rule_;
  double lr_factor_;
  std::vector<Table> tables_;
};

}  // namespace elinvar
