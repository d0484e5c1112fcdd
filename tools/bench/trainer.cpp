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

// Boxes of half to all of the image's middle.
Tensor random_boxes(const ModelCase& c, int64_t batch) {
  Tensor y = Tensor::empty({batch, c.boxes, 5});
  for (int64_t i = 0; i < batch * c.boxes; ++i) {
    const Random4 words = philox(2, static_cast<uint32_t>(i), 0, 0, 0);
    float* const box = y.data<float>() + 5 * i;
    box[0] = static_cast<float>(words.v[0] % static_cast<uint32_t>(c.classes));
    for (int k = 1; k <= 2; ++k) box[k] = 0.25f + 0.5f * uniform01(words.v[k]);
    for (int k = 3; k <= 4; ++k) box[k] = 0.05f + 0.4f * uniform01(words.v[3] >> (8 * (k - 3)));
  }
  return y;
}

Tensor random_target(const ModelCase& c, int64_t batch) {
  if (c.boxes > 0) return random_boxes(c, batch);
  Tensor y = Tensor::empty(c.is_text() ? Shape{batch, c.sample[0]} : Shape{batch}, DType::i64);
  for (int64_t i = 0; i < y.numel(); ++i) {
    const Random4 words = philox(2, static_cast<uint32_t>(i), 0, 0, 0);
    const bool ignored = c.masked > 0 && uniform01(words.v[1]) >= static_cast<float>(c.masked);
    y.data<int64_t>()[i] = ignored ? CrossEntropyOptions().ignore_index : words.v[0] % static_cast<uint32_t>(c.classes);
  }
  return y;
}

MadeTask task_of(const ModelCase& c) {
  if (c.boxes > 0) return make_task(c.task, {}, {.sample = {c.boxes, 5}, .dtype = DType::f32, .classes = c.classes});
  return make_task(c.task, {}, {.sample = c.is_text() ? c.sample : Shape{}, .classes = c.classes});
}

OptimizerConfig optimizer_of(const ModelCase& c) {
  if (c.is_text()) return {.kind = "adamw", .lr = 3e-4, .weight_decay = 0.01};
  return {.kind = "sgd", .lr = c.boxes > 0 ? 1e-4 : 0.1, .momentum = 0.9, .weight_decay = 1e-4};
}

InputInfo info_of(const ModelCase& c, int64_t outputs) {
  InputInfo info{.sample = c.sample, .classes = outputs, .dtype = c.is_text() ? DType::i32 : DType::f32};
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

ModelCase mixture_case(ModelCase gpt) {
  gpt.name += "experts";
  gpt.spec.settings["experts"] = {int64_t{8}};
  gpt.experts_per_token = 2;
  return gpt;
}

Trainer::Trainer(const ModelCase& model, int64_t batch, const TrainerOptions& options)
    : model_(model),
      batch_(batch),
      options_(options),
      config_(optimizer_of(model)),
      task_(task_of(model)),
      network_(
          on_device(build(in_shards(model.spec, options.shards), info_of(model, task_.outputs), 0), options.device)),
      optimizer_(make_optimizer(config_, network_->parameters)),
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
    return graphs_.micro_batch_gradient(*network_, inputs(), target_, task_.task, rng, options_.recompute);
  return micro_batch_gradient(*network_, inputs(), target_, task_.task, rng, options_.recompute);
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
