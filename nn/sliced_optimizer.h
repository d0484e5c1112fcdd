#pragma once
// An optimiser that keeps its state for slices of the parameters alone and updates only these, so that processes divide
// the state and the work among themselves (ZeRO; Rajbhandari et al., arXiv:1910.02054). A slice may be kept by several
// processes. Every element gets the bits that Optimizer::step gives it.
//
//   SlicedOptimizer optimizer(config, network.parameters, slices);
//   const Clipping clipping = clip_by_global_norm(sums_of_all_segments, config.clip_norm);
//   optimizer.step(network.parameters, gradients_of_slices, lr, step, clipping.scale, gather);
//   ... send the slices of the parameters to the processes that do not keep them
//
// A slice of a sparse table (nn/touched_rows.h) has whole rows.
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nn/optimizer.h"
#include "nn/sliced_tensors.h"
#include "nn/table_updates.h"
#include "nn/update_rule.h"

namespace elinvar {

// Throws SettingError, with the key optimizer.kind, if a program registered the kind: such an optimiser updates whole
// parameters only. Throws what check_optimizer() throws.
void check_can_slice(const OptimizerConfig& config);

class SlicedOptimizer {
 public:
  // The state starts at zero. Throws what check_optimizer(), check_can_slice() and check_slices() throw.
  SlicedOptimizer(const OptimizerConfig& config, const Parameters& parameters, std::vector<Slice> slices,
                  const Offload& offload = {});

  // Updates the slices of the parameters in place. `gradients` has a one-dimensional tensor for each slice of a dense
  // parameter, in order, and `of_tables` those of all parameters in order, of which only those of sparse tables count;
  // it may be empty if there are none. Other arguments are those of Optimizer::step. `values`, if any, are the slices,
  // in order, which are then not views of `parameters`. The touched rows are still to be committed.
  //
  // With has_trust_ratio(), step() calls `gather` once, also if it keeps no slices, and `gather` must return the same
  // sums in all processes (nn/update_rule.h). SegmentLayout::place() (tensor/slice.h) puts sums of slices in place.
  // If `gather` throws, the parameters have not changed, but the moments of LAMB have: restore them before the step is
  // repeated. Without has_trust_ratio(), `gather` may be empty.
  void step(Parameters& parameters, std::span<const Tensor> gradients, double lr, int64_t step, double gradient_scale,
            const GatherSums& gather, std::span<const Tensor> values = {}, std::span<const Tensor> of_tables = {});

  bool has_trust_ratio() const { return rule_->has_trust_ratio(); }
  // The slots of dense parameters: "momentum", or "m" and "v", or none.
  std::vector<std::string> slot_names() const { return rule_->slots(); }

  const std::vector<Slice>& slices() const { return slices_; }
  // As SlicedTensors::slots() and SlicedTensors::keep(), but the slots of tables come last. The names are those of
  // Optimizer::state().
  std::vector<SlotSlice> slots() const;
  std::vector<std::vector<Tensor>>& tensors() { return state_.tensors(); }  // of dense parameters
  void keep(std::vector<Slice> slices);
  // Returns the slots of a slice, views, or nullopt if it is not kept.
  std::optional<std::vector<Tensor>> slots_of(const Slice& slice);

 private:
  bool of_table(const Slice& slice) const { return sparse_[static_cast<size_t>(slice.tensor)]; }

  std::unique_ptr<UpdateRule> rule_;
  TableUpdates updates_;
  std::vector<bool> sparse_;  // parameters
  std::vector<Slice> slices_;
  SlicedTensors state_, table_state_;
};

}  // namespace elinvar
