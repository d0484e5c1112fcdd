// Regression: the output (N, F) must be near the numbers (N, F), or (N, 1) near (N).
//
// With d = output - target, in float32, the loss is the sum over all elements of
//   mse     d * d (autograd/loss.h)
//   mae     |d|
//   huber   |d| < delta ? d * d / 2 : delta * (|d| - delta / 2)
// Metrics, in binary64 from float32 outputs, element after element:
//   mae, rmse   the mean of |d| and the root of the mean of d * d
//   r2          1 - sum of d * d / sum of (target - mean target)^2, for all numbers of a sample together; 0 if the
//               targets are all equal
#include <cmath>

#include "autograd/pointwise.h"
#include "autograd/precision.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "nn/task.h"
#include "tensor/base/check.h"
#include "tensor/ops/compare.h"

namespace elinvar {
namespace {

enum class Distance { mse, mae, huber };

class Regression final : public Objective {
 public:
  Regression(Distance distance, double delta) : distance_(distance), delta_(delta) {}

  std::string key() const override { return fmt::format("regression {} {}", static_cast<int>(distance_), delta_); }
  int64_t count(const Targets& targets) const override { return targets.own.numel(); }
  bool has_accuracy() const override { return false; }

  LossAndTop1 loss(const ShardedLogits& output, const Targets& targets) const override {
    const auto [x, target] = matched(output, targets);
    if (distance_ == Distance::mse) return {mse_loss(x, target), {}};
    const Var d = abs(x - target);
    if (distance_ == Distance::mae) return {sum(d), {}};
    const Tensor near = less(d.value(), Tensor::scalar(delta_, DType::f32, d.value().device()));
    return {sum(where(near, square(d) * 0.5, (d - 0.5 * delta_) * delta_)), {}};
  }

  void judge(const Tensor& output, const Targets& targets, BatchScore& score) const override {
    const Tensor x = output.to(Device{}).to(DType::f32).to_contiguous(), y = targets.own.to(Device{}).to_contiguous();
    score.sums.resize(4);
    for (int64_t i = 0; i < y.numel(); ++i) {
      const double target = y.data<float>()[i], d = static_cast<double>(x.data<float>()[i]) - target;
      score.sums[0] += std::abs(d);
      score.sums[1] += d * d;
      score.sums[2] += target;
      score.sums[3] += target * target;
    }
  }
  std::map<std::string, double> metrics(const BatchScore& total) const override {
    const auto n = static_cast<double>(total.count);
    const double squares = total.sums.at(1), spread = total.sums.at(3) - total.sums.at(2) * (total.sums.at(2) / n);
    return {
        {"mae", total.sums.at(0) / n}, {"rmse", std::sqrt(squares / n)}, {"r2", spread > 0 ? 1 - squares / spread : 0}};
  }

 private:
  static std::pair<Var, Var> matched(const ShardedLogits& output, const Targets& targets) {
    const Var x = widened(joined(output));
    const Tensor& own = targets.own;
    check(own.dtype() == DType::f32 && own.ndim() >= 1 && own.dim(0) == x.dim(0) && own.numel() == x.value().numel(),
          "[regression] outputs {} need as many float32 targets, got {} {}", to_string(x.shape()), name_of(own.dtype()),
          to_string(own.shape()));
    const Tensor there = own.to(x.value().device());
    return {x, Var(there.reshape(x.shape()))};
  }

  Distance distance_;
  double delta_;
};

}  // namespace

MadeTask make_regression(Settings& settings, const TargetInfo& targets, const CrossEntropyOptions&) {
  settings.require(targets.dtype == DType::f32, "kind",
                   "= 'regression' needs targets that are numbers, but the data have {} of shape {} a sample",
                   name_of(targets.dtype), to_string(targets.sample));
  const std::string name = settings.choice("loss", "mse", {"mse", "mae", "huber"});
  const Distance distance = name == "mse" ? Distance::mse : name == "mae" ? Distance::mae : Distance::huber;
  const double delta = distance == Distance::huber ? settings.real("delta", 1.0, 1e-6, 1e6) : 0;
  return {Task(std::make_shared<Regression>(distance, delta)), targets.sample.numel()};
}

}  // namespace elinvar
