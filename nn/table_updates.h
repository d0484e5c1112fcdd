#pragma once
// Updates of sparse tables (nn/touched_rows.h): the touched rows and their state are copied into small tensors, which
// an ordinary update rule changes, and written back. Other rows and their state remain as they are (NUMERICS.md, rule
// 31). A process may have parts of tables alone (nn/sliced_optimizer.h); each row gets the same bits.
#include <memory>
#include <span>
#include <vector>

#include "nn/update_rule.h"

namespace elinvar {

// Adjacent rows of a sparse table, and their state.
struct TablePart {
  size_t parameter = 0;
  int64_t first = 0;          // the first of the rows
  Tensor values;              // (rows, channels)
  std::vector<Tensor> slots;  // of UpdateRule::slot_shape() of these rows
};

class TableUpdates {
 public:
  explicit TableUpdates(const OptimizerConfig& config);

  // Null if no table is sparse.
  const UpdateRule* rule() const { return rule_.get(); }

  // Updates the touched rows in these parts. `gradients` has those of all parameters in order, of which only those of
  // sparse tables count; `lr` is that of dense parameters.
  void step(const Parameters& parameters, std::span<TablePart> parts, std::span<const Tensor> gradients, double lr,
            int64_t step, double gradient_scale) const;

 private:
  std::unique_ptr<UpdateRule> rule_;
  double lr_factor_;
};

}  // namespace elinvar
