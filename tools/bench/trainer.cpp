#include "tools/bench/trainer.h"

#include "autograd/precision.h"
#include "models/build.h"
#include "tensor/base/check.h"
#include "tensor/philox.h"

namespace elinvar::bench {
namespace {

Tensor random_input(const ModelCase& c, int64_t batch) {
  Shape shape = c.sample;
  shape.insert(0, batch);
  Tensor x = Tensor::empty(shape, c.is_text() ? DType::i32 : DType::f32);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const uint32_t bits = philox(1, static_cast<uint32_t>(i), 0, 0, 0).v[0];
    if (c.is_text()) x.data<int32_t>()[i] = static_cast<int32_t>(bits % static_cast<uint32_t>(c.classes));
    else x.data<float>()[i] = 4.0f * uniform01(bits) - 2.0f;
  }
  return x;
}

Tensor random_target(const ModelCase& c, int64_t batch) {
  Tensor y = Tensor::empty(c.is_text() ? Shape{batch, c.sample[0]} : Shape{batch}, DType::i64);
  for (int64_t i = 0; i < y.numel(); ++i) {
    const Random4 words = philox(2, static_cast<uint32_t>(i), 0, 0, 0);
    const bool ignored = c.masked > 0 && uniform01(words.v[1]) >= static_cast<float>(c.masked);
    y.data<int64_t>()[i] = ignored ? CrossEntropyOptions().ignore_index : words.v[0] % static_cast<uint32_t>(c.classes);
  }
  return y;
}

InputInfo info_of(const ModelCase& c) {
  InputInfo info{.sample = c.sample, .classes = c.classes, .dtype = c.is_text() ? DType::i32 : DType::f32};
  if (c.masked > 0) info.further.push_back({.sample = c.sample, .dtype = DType::i32});
  return info;
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

Spec spec_of(const std::string& kind, std::map<std::string, Setting> settings) {
  return {.kind = kind, .settings = std::move(settings)};
}

ModelCase gpt_case(const std::string& name, int64_t layers, int64_t heads, int64_t channels, int64_t length,
                   int64_t classes, int64_t batch) {
  return {.name = name,
          .spec = spec_of("gpt", {{"layers", {layers}}, {"heads", {heads}}, {"channels", {channels}}}),
          .sample = {length},
          .classes = classes,
          .batch = batch,
          .layers = layers,
          .channels = channels};
}

Trainer::Trainer(const ModelCase& model, int64_t batch, const TrainerOptions& options)
    : model_(model),
      batch_(batch),
      options_(options),
      config_(model.is_text() ? OptimizerConfig{.kind = "adamw", .lr = 3e-4, .weight_decay = 0.01}
                              : OptimizerConfig{.kind = "sgd", .lr = 0.1, .momentum = 0.9, .weight_decay = 1e-4}),
      network_(on_device(build(in_shards(model.spec, options.shards), info_of(model), 0), options.device)),
      optimizer_(make_optimizer(config_, network_->parameters)),
      task_(make_task(model.task, {}, {.sample = model.is_text() ? model.sample : Shape{}, .classes = model.classes})
                .task),
      input_(random_input(model, batch)),
      target_(random_target(model, batch)),
      graphs_([](const std::string& notice) { fail("[bench] {}", notice); }) {
  if (!model.is_text()) input_ = input_.to(options.device);
}

void Trainer::set_batch(const Tensor& input, const Tensor& target) {
  input_ = input;
  target_ = target;
}

Inputs Trainer::inputs() const {
  if (model_.masked == 0) return input_;
  return {input_, {target_.to(DType::i32)}};
}

MicroBatchResult Trainer::gradients() {
  const PrecisionScope products(options_.precision);
  const Rng rng{.step = static_cast<uint32_t>(step_)};
  if (options_.graphs)
    return graphs_.micro_batch_gradient(*network_, inputs(), target_, task_, rng, options_.recompute);
  return micro_batch_gradient(*network_, inputs(), target_, task_, rng, options_.recompute);
}

void Trainer::update(const MicroBatchResult& result) {
  optimizer_->step(network_->parameters, result.gradients, config_.lr, step_, 1.0 / static_cast<double>(result.count));
  ++step_;
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
  return (6.0 * (12.0 * l * w * w + static_cast<double>(model_.classes) * w) + 6.0 * l * w * t) * items() / 1e9;
}

double Trainer::items() const { return static_cast<double>(model_.is_text() ? batch_ * model_.sample[0] : batch_); }

}  // namespace elinvar::bench
