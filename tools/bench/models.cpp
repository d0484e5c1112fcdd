#include "tools/bench/models.h"

#include "models/build.h"
#include "nn/leaf.h"
#include "nn/optimizer.h"
#include "tensor/check.h"
#include "tensor/philox.h"
#include "tools/bench/memory.h"
#include "tools/bench/timing.h"

namespace elinvar::bench {
namespace {

struct ModelCase {
  const char* name;
  ModelSpec spec;
  Shape sample;
  int64_t classes, batch;
  double forward_gflop;  // a sample; multiply-adds count two; 0: from the transformer's sizes below
  int64_t layers = 0, channels = 0;

  bool is_text() const { return layers > 0; }
};

ModelSpec spec_of(const char* kind, std::map<std::string, Setting> settings = {}) {
  return {.kind = kind, .settings = std::move(settings)};
}

ModelSpec gpt_spec(int64_t layers, int64_t heads, int64_t channels) {
  return spec_of("gpt", {{"layers", {layers}}, {"heads", {heads}}, {"channels", {channels}}});
}

const std::vector<ModelCase>& cases() {
  static const std::vector<ModelCase> all{{.name = "resnet20",
                                           .spec = spec_of("resnet20"),
                                           .sample = {32, 32, 3},
                                           .classes = 10,
                                           .batch = 128,
                                           .forward_gflop = 2 * 0.0408},
                                          {.name = "resnet18cifar",
                                           .spec = spec_of("resnet18", {{"stem", {std::string("cifar")}}}),
                                           .sample = {32, 32, 3},
                                           .classes = 10,
                                           .batch = 128,
                                           .forward_gflop = 2 * 0.5557},
                                          {.name = "resnet50",
                                           .spec = spec_of("resnet50"),
                                           .sample = {224, 224, 3},
                                           .classes = 1000,
                                           .batch = 16,
                                           .forward_gflop = 2 * 4.089},
                                          {.name = "vgg19cifar",
                                           .spec = spec_of("vgg19"),
                                           .sample = {32, 32, 3},
                                           .classes = 10,
                                           .batch = 128,
                                           .forward_gflop = 2 * 0.3981},
                                          {.name = "chargpt",
                                           .spec = gpt_spec(6, 6, 384),
                                           .sample = {256},
                                           .classes = 256,
                                           .batch = 16,
                                           .forward_gflop = 0,
                                           .layers = 6,
                                           .channels = 384},
                                          {.name = "gpt2",
                                           .spec = gpt_spec(12, 12, 768),
                                           .sample = {256},
                                           .classes = 50257,
                                           .batch = 4,
                                           .forward_gflop = 0,
                                           .layers = 12,
                                           .channels = 768}};
  return all;
}

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
  for (int64_t i = 0; i < y.numel(); ++i)
    y.data<int64_t>()[i] = philox(2, static_cast<uint32_t>(i), 0, 0, 0).v[0] % static_cast<uint32_t>(c.classes);
  return y;
}

// Of a training step: three times the forward pass. A transformer's tokens each meet all weights of its matrices and,
// in attention, half of the sequence on average.
double step_gflop(const ModelCase& c, int64_t batch) {
  if (!c.is_text()) return 3.0 * c.forward_gflop * static_cast<double>(batch);
  const auto l = static_cast<double>(c.layers), w = static_cast<double>(c.channels),
             t = static_cast<double>(c.sample[0]);
  return (6.0 * (12.0 * l * w * w + static_cast<double>(c.classes) * w) + 6.0 * l * w * t) *
         static_cast<double>(batch) * t / 1e9;
}

}  // namespace

std::vector<std::string> model_cases() {
  std::vector<std::string> names;
  for (const ModelCase& c : cases()) names.emplace_back(c.name);
  return names;
}

void run_model(const std::string& name, int64_t batch, int warm_up, int repeat, Report& report) {
  for (const ModelCase& c : cases()) {
    if (name != c.name) continue;
    if (batch == 0) batch = c.batch;
    MemoryWatch memory;
    const auto network =
        build(c.spec, {.sample = c.sample, .classes = c.classes, .dtype = c.is_text() ? DType::i32 : DType::f32}, 0);
    const OptimizerConfig config =
        c.is_text() ? OptimizerConfig{.kind = "adamw", .lr = 3e-4, .weight_decay = 0.01}
                    : OptimizerConfig{.kind = "sgd", .lr = 0.1, .momentum = 0.9, .weight_decay = 1e-4};
    const auto optimizer = make_optimizer(config, network->parameters);
    const Tensor input = random_input(c, batch), target = random_target(c, batch);
    int64_t step = 0;
    const double seconds = median_seconds(warm_up, repeat, [&] {
      const LeafResult result = leaf(*network, input, target, {}, Rng{.seed = 0, .step = static_cast<uint32_t>(step)});
      optimizer->step(network->parameters, result.gradients, config.lr, step, 1.0 / static_cast<double>(result.count));
      if (++step == warm_up) memory.steady();
    });
    const double items = static_cast<double>(c.is_text() ? batch * c.sample[0] : batch);
    report.add(c.name, seconds, step_gflop(c, batch), 0.0, items, c.is_text() ? "tokens" : "samples", memory.figures());
    return;
  }
  check(false, "bench models: unknown case '{}'; there are {}", name, fmt::join(model_cases(), ", "));
}

}  // namespace elinvar::bench
