#pragma once
// Normalisations with their parameters: weight and bias (C), which start as ones and zeros. Norms at the beginning of a
// transformer's branch also add up the residual stream.
#include "autograd/norm.h"
#include "nn/initializers.h"
#include "nn/network.h"
#include "nn/residual.h"

namespace elinvar {

// Parameters: weight, bias. Buffers: running_mean, running_var. In training it normalises by the statistics of its
// input and reports them to the context; otherwise it uses the running ones.
struct BatchNorm2d {
  Var weight, bias;
  std::shared_ptr<Buffer> running_mean, running_var;
  double eps = 1e-5, momentum = 0.1;

  BatchNorm2d() = default;
  BatchNorm2d(const Scope& scope, int64_t channels, double first_weight = 1.0)
      : weight(scope.parameter("weight", {channels}, init::constant(first_weight))),
        bias(scope.parameter("bias", {channels}, init::constant(0.0))),
        running_mean(scope.buffer("running_mean", {channels}, 0.0)),
        running_var(scope.buffer("running_var", {channels}, 1.0)) {}

  // `fused` adds a residual or a ReLU without another pass over memory; its eps is ignored in favour of this layer's.
  Var operator()(const Var& x, Context& context, BatchNormOptions fused = {}) const {
    fused.eps = eps;
    if (!context.training) return batch_norm_eval(x, weight, bias, running_mean->value, running_var->value, fused);
    BatchNormResult result = batch_norm(x, weight, bias, fused);
    context.statistics.push_back({running_mean, running_var, momentum, std::move(result.statistics)});
    return result.y;
  }
};

struct LayerNorm {
  Var weight, bias;
  double eps = 1e-5;

  LayerNorm() = default;
  LayerNorm(const Scope& scope, int64_t channels, double epsilon = 1e-5, bool with_bias = true)
      : weight(scope.parameter("weight", {channels}, init::constant(1.0))), eps(epsilon) {
    if (with_bias) bias = scope.parameter("bias", {channels}, init::constant(0.0));
  }

  Var operator()(const Var& x) const { return layer_norm(x, weight, bias, eps); }
  Var operator()(Residual& x) const {
    return x.normalised(
        *this, [&](const Var& sum, const Var& addend) { return add_layer_norm(sum, addend, weight, bias, eps); });
  }
};

struct RmsNorm {
  Var weight;
  double eps = 1e-5;

  RmsNorm() = default;
  RmsNorm(const Scope& scope, int64_t channels, double epsilon = 1e-5)
      : weight(scope.parameter("weight", {channels}, init::constant(1.0))), eps(epsilon) {}

  Var operator()(const Var& x) const { return rms_norm(x, weight, eps); }
  Var operator()(Residual& x) const {
    return x.normalised(*this,
                        [&](const Var& sum, const Var& addend) { return add_rms_norm(sum, addend, weight, eps); });
  }
};

struct GroupNorm {
  Var weight, bias;
  int64_t groups = 1;
  double eps = 1e-5;

  GroupNorm() = default;
  GroupNorm(const Scope& scope, int64_t channels, int64_t group_count, double epsilon = 1e-5)
      : weight(scope.parameter("weight", {channels}, init::constant(1.0))),
        bias(scope.parameter("bias", {channels}, init::constant(0.0))),
        groups(group_count),
        eps(epsilon) {}

  Var operator()(const Var& x) const { return group_norm(x, weight, bias, groups, eps); }
};

}  // namespace elinvar
