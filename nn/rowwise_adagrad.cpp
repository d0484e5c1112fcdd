// Adagrad with one number of state for each row of a table, as DLRM and FBGEMM train their tables: the sum of the mean
// squares of the row's gradients. For a row with gradient g of C channels, after scaling and clipping:
//   d = g + weight_decay * p                         (d = g without decay)
//   sum = sum + (mean of d * d over the C channels)  by rule 11
//   p = p - (lr / (sqrt(sum) + eps)) * d
// Each sign is one rounding (NUMERICS.md, rule 21).
#include "nn/optimizer.h"
#include "nn/update_rule.h"
#include "tensor/ops/pointwise.h"
#include "tensor/ops/reduce.h"

namespace elinvar {
namespace {

class RowwiseAdagrad final : public UpdateRule {
 public:
  explicit RowwiseAdagrad(const OptimizerConfig& config) : config_(config) {}

  std::vector<std::string> slots() const override { return {"sum"}; }
  Shape slot_shape(const Shape& table) const override { return {table[0], 1}; }
  bool has_trust_ratio() const override { return false; }

  void update(UpdatePieces& u, std::vector<std::vector<Tensor>>& slots) const override {
    for (size_t i = 0; i < u.p.size(); ++i) {
      Tensor &p = u.p[i], &sum = slots[0][i];
      Tensor d = mul(u.g[i], u.gradient_scale);
      const bool decays = u.parameters.list[u.of[i]].decay && config_.weight_decay > 0.0;
      if (decays) d = add(d, mul(p, config_.weight_decay));
      add_into(sum, mean(square(d), {1}, /*keepdim=*/true));
      const Tensor lr = Tensor::scalar(u.lr, p.dtype(), p.device());
      p = sub(p, mul(div(lr, add(sqrt(sum), config_.eps)), d));
    }
  }

 private:
  OptimizerConfig config_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_rowwise_adagrad(const OptimizerConfig& config) {
  return std::make_unique<RowwiseAdagrad>(config);
}

}  // namespace elinvar
