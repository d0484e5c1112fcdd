#include "nn/optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/base/check.h"
#include "tensor/base/registry.h"
#include "tensor/base/setting.h"
#include "tensor/base/spelling.h"
#include "tensor/numerics.h"
#include "tensor/ops/copy.h"
#include "tensor/ops/global_norm.h"
#include "tensor/ops/optimizer.h"

namespace elinvar {
namespace {

// x^n by repeated squaring, with plain products, so that no bit depends on a mathematical library.
double power(double x, int64_t n) {
  double result = 1.0;
  for (; n > 0; n /= 2, x *= x)
    if (n % 2 == 1) result *= x;
  return result;
}

struct Slots {
  std::vector<std::string> names;  // "<parameter>.<what>"
  std::vector<Tensor> tensors;     // one per parameter

  Slots() = default;
  Slots(const Parameters& parameters, const char* what) {
    for (const Parameter& p : parameters.list) {
      names.push_back(p.name + "." + what);
      tensors.push_back(Tensor::zeros(p.var.shape(), p.var.dtype(), p.var.value().device()));
    }
  }
  void add_to(StateDict& state) const {
    for (size_t i = 0; i < names.size(); ++i) state.emplace(names[i], tensors[i]);
  }
};

// The checked arguments of an update, in the order of the parameters.
struct Update {
  std::vector<Tensor> p, g;
  std::vector<bool> decay;
  std::vector<std::pair<size_t, size_t>> wholes;  // parameters [first, second) are the shards of one tensor

  Update(Parameters& parameters, std::span<const Tensor> gradients) {
    check(gradients.size() == parameters.list.size(), "[optimizer] {} parameters but {} gradients",
          parameters.list.size(), gradients.size());
    for (size_t i = 0; i < gradients.size(); ++i) {
      Parameter& parameter = parameters.list[i];
      p.push_back(parameter.var.mutable_value());
      const Tensor& gradient = gradients[i];
      check(gradient.defined() && gradient.shape() == p[i].shape() && gradient.dtype() == p[i].dtype() &&
                gradient.device() == p[i].device(),
            "[optimizer] the gradient of {} must be {} of shape {} on a {}", parameter.name, name_of(p[i].dtype()),
            to_string(p[i].shape()), name_of(p[i].device().kind));
      check(p[i].contiguous(), "[optimizer] parameter {} must be contiguous", parameter.name);
      g.push_back(gradient.to_contiguous());
      decay.push_back(parameter.decay);
      if (parameter.shard == 0) wholes.emplace_back(i, i + static_cast<size_t>(parameter.cut.shards));
    }
  }
};

float rounded(double x) { return static_cast<float>(x); }

// Returns a trust ratio in the form that the kernels take, multiplied by `rate`. If float32 cannot hold the product,
// because one norm is far smaller than the other, the update has no useful direction, and the ratio is 1.
float scaled_by_trust(double rate, double ratio) {
  const float scaled = rounded(rate * ratio);
  return std::isfinite(scaled) ? scaled : rounded(rate);
}

// SGD or, with `layerwise`, LARS: ratio = trust * |p| / (|g| + weight_decay * |p| + eps) if both norms are positive and
// it is a float32, else 1; |g| is the norm after scaling.
class Sgd final : public Optimizer {
 public:
  Sgd(const OptimizerConfig& config, const Parameters& parameters, bool layerwise)
      : config_(config), layerwise_(layerwise) {
    if (config.momentum != 0.0) velocity_ = Slots(parameters, "momentum");
  }

  void step(Parameters& parameters, std::span<const Tensor> gradients, double lr, int64_t,
            double gradient_scale) override {
    Update u(parameters, gradients);
    const std::vector<double> ratios = trust_ratios(u, gradient_scale);
    std::vector<SgdArgs> constants(u.p.size());
    for (size_t i = 0; i < u.p.size(); ++i) {
      SgdArgs& a = constants[i];
      a.n = u.p[i].numel();
      a.scale = rounded(gradient_scale);
      a.lr = rounded(lr);
      a.momentum = rounded(config_.momentum);
      a.weight_decay = rounded(decay_of(u, i));
      a.ratio = scaled_by_trust(1.0, ratios[i]);
      a.nesterov = config_.nesterov;
    }
    sgd(u.g, u.p, velocity_.tensors, constants);
  }

  StateDict state() const override {
    StateDict all;
    velocity_.add_to(all);
    return all;
  }

 private:
  double decay_of(const Update& u, size_t i) const { return u.decay[i] ? config_.weight_decay : 0.0; }

  std::vector<double> trust_ratios(const Update& u, double gradient_scale) const {
    std::vector<double> ratios(u.p.size(), 1.0);
    if (!layerwise_) return ratios;
    std::vector<Tensor> measured;  // p and g alternating
    std::vector<int64_t> counts;
    for (const auto& [begin, end] : u.wholes) {
      if (!u.decay[begin]) continue;
      for (const std::vector<Tensor>* tensors : {&u.p, &u.g}) {
        for (size_t i = begin; i < end; ++i) measured.push_back((*tensors)[i]);
        counts.push_back(static_cast<int64_t>(end - begin));
      }
    }
    const std::vector<double> found = norms(measured, counts);
    size_t at = 0;
    for (const auto& [begin, end] : u.wholes) {
      if (!u.decay[begin]) continue;
      const double p_norm = found[at], g_norm = found[at + 1] * gradient_scale;
      at += 2;
      if (p_norm > 0.0 && g_norm > 0.0)
        std::fill(ratios.begin() + static_cast<std::ptrdiff_t>(begin),
                  ratios.begin() + static_cast<std::ptrdiff_t>(end),
                  config_.trust * p_norm / (g_norm + decay_of(u, begin) * p_norm + config_.eps));
    }
    return ratios;
  }

  OptimizerConfig config_;
  bool layerwise_;
  Slots velocity_;  // empty without momentum
};

// The two moments of Adam, AdamW and LAMB, and their corrections.
class Moments : public Optimizer {
 public:
  Moments(const OptimizerConfig& config, const Parameters& parameters)
      : config_(config), m_(parameters, "m"), v_(parameters, "v") {}

  StateDict state() const override {
    StateDict all;
    m_.add_to(all);
    v_.add_to(all);
    return all;
  }

 protected:
  double correction1(int64_t step) const { return 1.0 / (1.0 - power(config_.beta1, step + 1)); }

  template <class Args>
  Args constants_of(const Tensor& p, int64_t step, double gradient_scale) const {
    Args a{};
    a.n = p.numel();
    a.scale = rounded(gradient_scale);
    a.beta1 = rounded(config_.beta1);
    a.one_minus_beta1 = rounded(1.0 - config_.beta1);
    a.beta2 = rounded(config_.beta2);
    a.one_minus_beta2 = rounded(1.0 - config_.beta2);
    a.eps = rounded(config_.eps);
    a.root_correction2 = rounded(1.0 / std::sqrt(1.0 - power(config_.beta2, step + 1)));
    return a;
  }

  OptimizerConfig config_;
  Slots m_, v_;
};

class Adam final : public Moments {
 public:
  Adam(const OptimizerConfig& config, const Parameters& parameters, bool decoupled)
      : Moments(config, parameters), decoupled_(decoupled) {}

  void step(Parameters& parameters, std::span<const Tensor> gradients, double lr, int64_t step,
            double gradient_scale) override {
    Update u(parameters, gradients);
    std::vector<AdamArgs> constants;
    for (size_t i = 0; i < u.p.size(); ++i) {
      AdamArgs a = constants_of<AdamArgs>(u.p[i], step, gradient_scale);
      const double decay = u.decay[i] ? config_.weight_decay : 0.0;
      if (decoupled_) a.decay = rounded(1.0 - lr * decay);
      else a.weight_decay = rounded(decay);
      a.step_size = rounded(lr * correction1(step));
      constants.push_back(a);
    }
    adam(u.g, u.p, m_.tensors, v_.tensors, constants);
  }

 private:
  bool decoupled_;
};

class Lamb final : public Moments {
 public:
  using Moments::Moments;

  void step(Parameters& parameters, std::span<const Tensor> gradients, double lr, int64_t step,
            double gradient_scale) override {
    Update u(parameters, gradients);
    std::vector<LambArgs> constants;
    for (size_t i = 0; i < u.p.size(); ++i) {
      LambArgs a = constants_of<LambArgs>(u.p[i], step, gradient_scale);
      a.weight_decay = rounded(u.decay[i] ? config_.weight_decay : 0.0);
      a.correction1 = rounded(correction1(step));
      constants.push_back(a);
    }
    const Tensor sums = lamb_moments(u.g, u.p, m_.tensors, v_.tensors, constants).to(Device{});
    const double* at = sums.data<double>();
    for (const auto& [begin, end] : u.wholes) {
      double p_sum = 0.0, u_sum = 0.0;
      for (size_t i = begin; i < end; ++i)
        for (int64_t s = segments_of(constants[i].n); s > 0; --s, at += 2) {
          p_sum += at[0];
          u_sum += at[1];
        }
      const bool trusted = u.decay[begin] && p_sum > 0.0 && u_sum > 0.0;
      for (size_t i = begin; i < end; ++i)
        constants[i].step_size = scaled_by_trust(lr, trusted ? std::sqrt(p_sum) / std::sqrt(u_sum) : 1.0);
    }
    lamb_apply(u.p, m_.tensors, v_.tensors, constants);
  }
};

using Make = std::unique_ptr<Optimizer>(const OptimizerConfig&, const Parameters&, OptimizerConfig* resolved);

struct OptimizerMaker {
  std::string name;
  std::function<Make> make;
};

template <class T, class... Variant>
OptimizerMaker built_in(const char* name, Variant... variant) {
  return {name, [=](const OptimizerConfig& config, const Parameters& parameters, OptimizerConfig*) {
            return std::make_unique<T>(config, parameters, variant...);
          }};
}

Registry<OptimizerMaker>& registry() {
  static Registry<OptimizerMaker> all({built_in<Sgd>("sgd", /*layerwise=*/false),
                                       built_in<Sgd>("lars", /*layerwise=*/true),
                                       built_in<Adam>("adam", /*decoupled=*/false),
                                       built_in<Adam>("adamw", /*decoupled=*/true), built_in<Lamb>("lamb")});
  return all;
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
  check_range(!divides_by_moments || rounded(c.eps) > 0.0f, "optimizer.eps",
              "above 0 in float32, or where a gradient is 0 the update would be 0 / 0", c.eps);
  check_range(c.weight_decay >= 0.0, "optimizer.weight_decay", "at least 0", c.weight_decay);
  check_range(c.trust > 0.0, "optimizer.trust", "positive", c.trust);
  // The kernels take these as float32.
  for (const auto& [key, value] : {std::pair{"optimizer.lr", c.lr},
                                   {"optimizer.eps", c.eps},
                                   {"optimizer.weight_decay", c.weight_decay},
                                   {"optimizer.trust", c.trust}})
    check_setting(std::isfinite(rounded(value)), key, "must be at most {:g}, the largest float32, got {:g}",
                  std::numeric_limits<float>::max(), value);
  check_range(std::isfinite(c.clip_norm) && c.clip_norm >= 0.0, "optimizer.clip_norm", "at least 0", c.clip_norm);
  check_range(c.ema_decay >= 0.0 && c.ema_decay < 1.0, "optimizer.ema_decay", "in [0, 1)", c.ema_decay);
  check_setting(!c.nesterov || c.momentum > 0.0, "optimizer.nesterov", "needs a momentum above 0");
}

std::vector<std::string> optimizer_kinds() { return registry().names(); }

bool is_built_in_optimizer(std::string_view kind) { return registry().built_in(kind); }

void register_optimizer(OptimizerKind kind) {
  const auto make = [make = std::move(kind.make)](const OptimizerConfig& config, const Parameters& parameters,
                                                  OptimizerConfig* resolved) {
    Settings settings(config.own, "optimizer", &resolved->own);
    std::unique_ptr<Optimizer> optimizer = make(settings, parameters);
    settings.finish();
    check(optimizer != nullptr, "[optimizer] kind '{}' made no optimizer", config.kind);
    return optimizer;
  };
  registry().add({std::move(kind.name), make}, "optimizer");
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
                                          OptimizerConfig* resolved) {
  check_optimizer(config);
  OptimizerConfig complete = config;
  std::unique_ptr<Optimizer> optimizer = registry().find(config.kind)->make(config, parameters, &complete);
  if (resolved != nullptr) *resolved = std::move(complete);
  return optimizer;
}

}  // namespace elinvar
