#pragma once
// The update rules of the built-in kinds of optimiser (tensor/ops/optimizer.h), which work on pieces of parameters:
// whole ones (nn/optimizer.h) or slices (nn/sliced_optimizer.h). Both have the same bits.
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nn/offload.h"
#include "nn/parameters.h"

namespace elinvar {

struct OptimizerConfig;

// Rules with trust ratios (LARS, LAMB) need norms of whole parameters. They compute, for each segment of 4096 elements
// (NUMERICS.md, rule 19), this many sums of squares: of the parameter before the update, and of the gradient before it
// is scaled (LARS) or of the update u before it is scaled (LAMB).
inline constexpr int kSumsPerSegment = 2;

// Takes the sums of the segments of the pieces, in order, the two of a segment adjacent. Returns those of all segments
// of all parameters in order, also of parameters that are exempt from decay and therefore have no trust ratio.
using GatherSums = std::function<std::vector<double>(std::vector<double>)>;

// The checked arguments of an update.
struct UpdatePieces {
  const Parameters& parameters;
  double lr = 0;
  int64_t step = 0;
  double gradient_scale = 1;
  const GatherSums& gather;  // may be empty if the pieces are all parameters
  const Offload& offload;    // where the state is
  // The elements of each piece, their gradients, and the index of the parameter.
  std::vector<Tensor> p = {}, g = {};
  std::vector<size_t> of = {};

  // Adds a piece of parameters.list[index].
  void add(size_t index, const Tensor& piece, const Tensor& gradient);
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  virtual std::vector<std::string> slots() const = 0;  // names of the state that it keeps: "m", "v"
  virtual Shape slot_shape(const Shape& parameter) const { return parameter; }
  virtual bool has_trust_ratio() const = 0;  // whether it gathers sums, once a step
  // Changes u.p and the slots, slots[k][i] being slot k of piece i, in place.
  virtual void update(UpdatePieces& u, std::vector<std::vector<Tensor>>& slots) const = 0;
};

std::unique_ptr<UpdateRule> make_sgd(const OptimizerConfig& config, bool layerwise);   // layerwise: LARS
std::unique_ptr<UpdateRule> make_adam(const OptimizerConfig& config, bool decoupled);  // decoupled: AdamW
std::unique_ptr<UpdateRule> make_lamb(const OptimizerConfig& config);
std::unique_ptr<UpdateRule> make_rowwise_adagrad(const OptimizerConfig& config);  // of sparse tables alone
// Returns the rule of config.kind, null if a program registered it. Throws what check_optimizer() throws.
std::unique_ptr<UpdateRule> make_update_rule(const OptimizerConfig& config);
// Returns the rule of sparse tables (nn/touched_rows.h), null if no parameter is to be sparse.
std::unique_ptr<UpdateRule> make_table_rule(const OptimizerConfig& config);

}  // namespace elinvar
