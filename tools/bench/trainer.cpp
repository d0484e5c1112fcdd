#include "tools/bench/trainer.h"

#include "autograd/precision.h"
#include "models/build.h"
#include "tensor/base/check.h"

namespace elinvar::bench {
namespace {

OptimizerConfig optimizer_of(const ModelCase& c) {
  if (c.is_text()) return {.kind = "adamw", .lr = 3e-4, .weight_decay = 0.01};
  if (c.data == CaseData::masks || c.data == CaseData::table || c.data == CaseData::ratings)
    return {.kind = "adam", .lr = 1e-3};
  return {.kind = "sgd", .lr = c.data == CaseData::boxes ? 1e-4 : 0.1, .momentum = 0.9, .weight_decay = 1e-4};
}

Spec in_shards(Spec spec, int shards) {
  if (shards > 1) spec.settings["virtual_shards"] = {int64_t{shards}};
  return spec;
}

std::unique_ptr<Network> on_device(std::unique_ptr<Network> network, Device device) {
  network->parameters.move_to(device);
  return network;
}

}  // namespace

Trainer::Trainer(const ModelCase& model, int64_t batch, const TrainerOptions& options)
    : model_(model),
      batch_(batch),
      options_(options),
      config_(optimizer_of(model)),
      task_(make_task(model.task, {}, target_of(model))),
      network_(
          on_device(build(in_shards(model.spec, options.shards), input_of(model, task_.outputs), 0), options.device)),
      optimizer_(make_optimizer(config_, network_->parameters)),
      data_(random_batch(model, batch)),
      graphs_([](const std::string& notice) { fail("[bench] {}", notice); }) {
  // Indices stay on the host, where they are checked.
  if (data_.inputs.first.dtype() == DType::f32) data_.inputs.first = data_.inputs.first.to(options.device);
}

void Trainer::set_batch(const Tensor& input, const Tensor& target) { data_ = {input, target}; }

MicroBatchResult Trainer::gradients() {
  const PrecisionScope products(options_.precision);
  const Rng rng{.step = static_cast<uint32_t>(step_)};
  if (options_.graphs)
    return graphs_.micro_batch_gradient(*network_, data_.inputs, data_.target, task_.task, rng, options_.recompute);
  return micro_batch_gradient(*network_, data_.inputs, data_.target, task_.task, rng, options_.recompute);
}

void Trainer::update(const MicroBatchResult& result) {
  optimizer_->step(network_->parameters, result.gradients, config_.lr, step_, 1.0 / static_cast<double>(result.count));
  ++step_;
}

void Trainer::settle() const {
  on_gpu(options_.device, [](auto& stream) { stream.synchronize(); });
}

StateDict Trainer::state() const {
  StateDict all;
  for (const auto& [name, tensor] : network_->parameters.state()) all.emplace("model." + name, tensor);
  for (const auto& [name, tensor] : optimizer_->state()) all.emplace("optimizer." + name, tensor);
  return all;
}

// Three times the forward pass. In a transformer each token meets all weights of the matrices and, in attention, half
// of the sequence on average.
double Trainer::gflop() const {
  if (!model_.is_transformer()) return 3.0 * model_.forward_gflop * static_cast<double>(batch_);
  const auto l = static_cast<double>(model_.layers), w = static_cast<double>(model_.channels),
             t = static_cast<double>(model_.sample[0]);
  const double squares = 4.0 + 8.0 * static_cast<double>(model_.experts_per_token);
  return (6.0 * (squares * l * w * w + static_cast<double>(model_.classes) * w) + 6.0 * l * w * t) * items() / 1e9;
}

double Trainer::items() const { return static_cast<double>(model_.is_text() ? batch_ * model_.sample[0] : batch_); }

}  // namespace elinvar::bench
