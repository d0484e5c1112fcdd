#include "nn/update_rule.h"

#include <cmath>
#include <utility>

#include "nn/optimizer.h"
#include "nn/update_parts.h"
#include "tensor/base/check.h"
#include "tensor/numerics.h"
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

float rounded(double x) { return static_cast<float>(x); }

double decay_of(const OptimizerConfig& config, const Parameter& parameter) {
  return parameter.decay ? config.weight_decay : 0.0;
}

// Returns a trust ratio in the form that the kernels take, multiplied by `rate`. If float32 cannot hold the product,
// because one norm is far smaller than the other, the update has no useful direction, and the ratio is 1.
float scaled_by_trust(double rate, double ratio) {
  const float scaled = rounded(rate * ratio);
  return std::isfinite(scaled) ? scaled : rounded(rate);
}

// The norms of the tensor that a parameter is, or is a shard of: its own, and that of its gradient or update.
struct Norms {
  double p = 0.0, other = 0.0;
};

// Returns the norms for each parameter, from the sums of the pieces.
std::vector<Norms> gathered_norms(const UpdatePieces& u, std::vector<double> sums) {
  if (u.gather) sums = u.gather(std::move(sums));
  const std::vector<Parameter>& list = u.parameters.list;
  size_t expected = 0;
  for (const Parameter& p : list) expected += kSumsPerSegment * static_cast<size_t>(segments_of(p.var.shape().numel()));
  check(sums.size() == expected, "[optimizer] {} sums of segments of all parameters expected, got {}", expected,
        sums.size());
  std::vector<Norms> norms;
  const double* at = sums.data();
  while (norms.size() < list.size()) {
    const size_t begin = norms.size(), end = begin + static_cast<size_t>(list[begin].cut.shards);
    Norms squares;
    for (size_t i = begin; i < end; ++i)
      for (int64_t s = segments_of(list[i].var.shape().numel()); s > 0; --s, at += kSumsPerSegment) {
        squares.p += at[0];
        squares.other += at[1];
      }
    norms.resize(end, {std::sqrt(squares.p), std::sqrt(squares.other)});
  }
  return norms;
}

// SGD or, with `layerwise`, LARS: ratio = trust * |p| / (|g| + weight_decay * |p| + eps) if both norms are positive and
// it is a float32, else 1; |g| is the norm after scaling.
class Sgd final : public UpdateRule {
 public:
  Sgd(const OptimizerConfig& config, bool layerwise) : config_(config), layerwise_(layerwise) {}

  std::vector<std::string> slots() const override {
    return config_.momentum != 0.0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>();
  }
  bool has_trust_ratio() const override { return layerwise_; }

  void update(UpdatePieces& u, std::vector<std::vector<Tensor>>& slots) const override {
    std::vector<Norms> norms;
    if (layerwise_) norms = gathered_norms(u, sums_of(u));
    update_in_parts(u, slots, SlotUse::change, [&](UpdatePart& part) {
      std::vector<SgdArgs> constants(part.p.size());
      for (size_t i = 0; i < constants.size(); ++i) {
        const Parameter& parameter = u.parameters.list[part.of[i]];
        SgdArgs& a = constants[i];
        a.n = part.p[i].numel();
        a.scale = rounded(u.gradient_scale);
        a.lr = rounded(u.lr);
        a.momentum = rounded(config_.momentum);
        a.weight_decay = rounded(decay_of(config_, parameter));
        a.ratio = layerwise_ ? scaled_by_trust(1.0, trust_ratio(u, norms[part.of[i]], parameter)) : 1.0f;
        a.nesterov = config_.nesterov;
      }
      std::vector<Tensor> none;
      sgd(part.g, part.p, part.slots.empty() ? none : part.slots[0], constants);
    });
  }

 private:
  static std::vector<double> sums_of(const UpdatePieces& u) {
    std::vector<Tensor> both = u.p;
    both.insert(both.end(), u.g.begin(), u.g.end());
    const std::vector<double> found = segment_sums(both);
    const size_t segments = found.size() / 2;
    std::vector<double> sums;
    for (size_t s = 0; s < segments; ++s) {
      sums.push_back(found[s]);
      sums.push_back(found[segments + s]);
    }
    return sums;
  }

  double trust_ratio(const UpdatePieces& u, const Norms& norms, const Parameter& parameter) const {
    const double p_norm = norms.p, g_norm = norms.other * u.gradient_scale;
    if (!parameter.decay || !(p_norm > 0.0 && g_norm > 0.0)) return 1.0;
    return config_.trust * p_norm / (g_norm + decay_of(config_, parameter) * p_norm + config_.eps);
  }

  OptimizerConfig config_;
  bool layerwise_;
};

// The two moments of Adam, AdamW and LAMB, and their corrections.
class Moments : public UpdateRule {
 public:
  explicit Moments(const OptimizerConfig& config) : config_(config) {}

  std::vector<std::string> slots() const override { return {"m", "v"}; }

 protected:
  double correction1(int64_t step) const { return 1.0 / (1.0 - power(config_.beta1, step + 1)); }

  template <class Args>
  Args constants_of(const UpdatePieces& u, const UpdatePart& part, size_t i) const {
    Args a{};
    a.n = part.p[i].numel();
    a.scale = rounded(u.gradient_scale);
    a.beta1 = rounded(config_.beta1);
    a.one_minus_beta1 = rounded(1.0 - config_.beta1);
    a.beta2 = rounded(config_.beta2);
    a.one_minus_beta2 = rounded(1.0 - config_.beta2);
    a.eps = rounded(config_.eps);
    a.root_correction2 = rounded(1.0 / std::sqrt(1.0 - power(config_.beta2, u.step + 1)));
    return a;
  }

  OptimizerConfig config_;
};

class Adam final : public Moments {
 public:
  Adam(const OptimizerConfig& config, bool decoupled) : Moments(config), decoupled_(decoupled) {}

  bool has_trust_ratio() const override { return false; }

  void update(UpdatePieces& u, std::vector<std::vector<Tensor>>& slots) const override {
    update_in_parts(u, slots, SlotUse::change, [&](UpdatePart& part) {
      std::vector<AdamArgs> constants;
      for (size_t i = 0; i < part.p.size(); ++i) {
        AdamArgs a = constants_of<AdamArgs>(u, part, i);
        const double decay = decay_of(config_, u.parameters.list[part.of[i]]);
        if (decoupled_) a.decay = rounded(1.0 - u.lr * decay);
        else a.weight_decay = rounded(decay);
        a.step_size = rounded(u.lr * correction1(u.step));
        constants.push_back(a);
      }
      adam(part.g, part.p, part.slots[0], part.slots[1], constants);
    });
  }

 private:
  bool decoupled_;
};

class Lamb final : public Moments {
 public:
  using Moments::Moments;

  bool has_trust_ratio() const override { return true; }

  void update(UpdatePieces& u, std::vector<std::vector<Tensor>>& slots) const override {
    const auto constants_of_part = [&](const UpdatePart& part) {
      std::vector<LambArgs> constants;
      for (size_t i = 0; i < part.p.size(); ++i) {
        LambArgs a = constants_of<LambArgs>(u, part, i);
        a.weight_decay = rounded(decay_of(config_, u.parameters.list[part.of[i]]));
        a.correction1 = rounded(correction1(u.step));
        constants.push_back(a);
      }
      return constants;
    };
    std::vector<Tensor> squares;
    update_in_parts(u, slots, SlotUse::change, [&](UpdatePart& part) {
      squares.push_back(lamb_moments(part.g, part.p, part.slots[0], part.slots[1], constants_of_part(part)));
    });
    std::vector<double> sums;
    for (const Tensor& x : squares) {
      const Tensor here = x.to(Device{});
      sums.insert(sums.end(), here.span<double>().begin(), here.span<double>().end());
    }
    const std::vector<Norms> norms = gathered_norms(u, std::move(sums));
    update_in_parts(u, slots, SlotUse::read, [&](UpdatePart& part) {
      std::vector<LambArgs> constants = constants_of_part(part);
      for (size_t i = 0; i < constants.size(); ++i) {
        const Norms& n = norms[part.of[i]];
        const bool trusted = u.parameters.list[part.of[i]].decay && n.p > 0.0 && n.other > 0.0;
        constants[i].step_size = scaled_by_trust(u.lr, trusted ? n.p / n.other : 1.0);
      }
      lamb_apply(part.p, part.slots[0], part.slots[1], constants);
    });
  }
};

}  // namespace

void UpdatePieces::add(size_t index, const Tensor& piece, const Tensor& gradient) {
  const std::string& name = parameters.list[index].name;
  check(gradient.defined() && gradient.shape() == piece.shape() && gradient.dtype() == piece.dtype() &&
            gradient.device() == piece.device(),
        "[optimizer] the gradient of {} must be {} of shape {} on a {}", name, name_of(piece.dtype()),
        to_string(piece.shape()), name_of(piece.device().kind));
  check(piece.contiguous(), "[optimizer] parameter {} must be contiguous", name);
  p.push_back(piece);
  g.push_back(gradient.to_contiguous());
  of.push_back(index);
}

std::unique_ptr<UpdateRule> make_sgd(const OptimizerConfig& config, bool layerwise) {
  return std::make_unique<Sgd>(config, layerwise);
}
std::unique_ptr<UpdateRule> make_adam(const OptimizerConfig& config, bool decoupled) {
  return std::make_unique<Adam>(config, decoupled);
}
std::unique_ptr<UpdateRule> make_lamb(const OptimizerConfig& config) { return std::make_unique<Lamb>(config); }

}  // namespace elinvar
