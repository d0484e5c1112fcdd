#pragma once
// Optimisers turn a reduced gradient into an update, by the expressions in tensor/ops/optimizer.h.
// nn/sliced_optimizer.h divides the work among processes.
//
//   auto optimizer = make_optimizer(config, network.parameters);
//   optimizer->step(network.parameters, gradients, lr, step, clip_by_global_norm(gradients, 1.0).scale);
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nn/offload.h"
#include "nn/parameters.h"
#include "tensor/base/spec.h"
#include "tensor/state.h"

namespace elinvar {

struct OptimizerConfig {
  std::string kind = "sgd";                       // one of optimizer_kinds()
  double lr = 0.1;                                // the schedule's peak
  double momentum = 0.9;                          // sgd, lars
  bool nesterov = false;                          // sgd, lars
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  // adam, adamw, lamb; eps also lars
  // For parameters whose `decay` is true: decoupled in adamw and lamb, otherwise added to the gradient.
  double weight_decay = 0.0;
  // Parameters without decay: entries for exempt_from_decay() (nn/parameters.h), called before the first step.
  std::vector<std::string> exempt = {};
  double trust = 0.001;    // lars: the trust coefficient
  double clip_norm = 0.0;  // the largest global gradient norm; 0: no clipping
  // Sparse tables (nn/touched_rows.h), as patterns of names, their kind (one of sparse_kinds(); "": the same) and
  // learning rate (the schedule's peak; 0: the same).
  std::vector<std::string> sparse = {};
  std::string sparse_kind = {};
  double sparse_lr = 0.0;
  double ema_decay = 0.0;  // decay of a moving average of the weights (nn/weight_average.h); 0: no average
  // The settings of a kind that a program registers, besides kind, lr, exempt, clip_norm and ema_decay.
  Spec own = {};
};

std::vector<std::string> optimizer_kinds();  // built in and registered
std::vector<std::string> sparse_kinds();     // those that can update sparse tables
bool is_built_in_optimizer(std::string_view kind);

// Throws SettingError (tensor/base/setting.h) on an unknown kind or a constant out of its range.
void check_optimizer(const OptimizerConfig& config);

class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Updates the parameters in place from gradients in the same order, each multiplied by gradient_scale first. `step`
  // counts from 0. Parameters without decay (Parameter::decay) have no trust ratio, either.
  virtual void step(Parameters& parameters, std::span<const Tensor> gradients, double lr, int64_t step,
                    double gradient_scale = 1.0) = 0;

  // Returns the optimiser's tensors, named "<parameter>.<what>". They are views: writing to them changes the optimiser.
  virtual StateDict state() const = 0;
  // Copies tensors in; names, shapes and dtypes must match exactly.
  void load(const StateDict& state);
};

// The state starts at zero. Throws what check_optimizer() throws, and UsageError if the state of a registered kind is
// to be offloaded. `resolved`, if not null, receives `config` with the defaults of a registered kind filled in.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config, const Parameters& parameters,
                                          OptimizerConfig* resolved = nullptr, const Offload& offload = {});

// A kind of optimiser that a program adds to the built-in ones. `make` reads its settings (the caller calls their
// finish()). Its updates must depend only on the arguments of step() and on state(), as workers that join get only
// these.
struct OptimizerKind {
  std::string name;
  std::function<std::unique_ptr<Optimizer>(Settings&, const Parameters&)> make;
};
// Call it at the start of main(). Throws UsageError if the name is taken.
void register_optimizer(OptimizerKind kind);

}  // namespace elinvar
