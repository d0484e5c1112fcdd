#include "tools/bench/models.h"

#include <algorithm>
#include <memory>

#include "tensor/base/check.h"
#include "tools/bench/kernel_times.h"
#include "tools/bench/memory.h"
#include "tools/peak/timing.h"

namespace elinvar::bench {
namespace {

ModelCase image_case(const std::string& name, Spec spec, int64_t side, int64_t classes, int64_t batch,
                     double forward_gflop) {
  return {.name = name,
          .spec = std::move(spec),
          .sample = {side, side, 3},
          .classes = classes,
          .batch = batch,
          .forward_gflop = forward_gflop};
}

ModelCase box_case(const std::string& name, int64_t batch, double forward_gflop) {
  ModelCase made = image_case(name, spec_of(name), 416, 80, batch, forward_gflop);
  made.boxes = 10;
  made.task = {.kind = "detection"};
  return made;
}

// A language model of layers as wide as its embeddings, for sequences of 128 bytes.
ModelCase lstm_case(const std::string& name, int64_t layers, int64_t width, int64_t batch) {
  constexpr int64_t kLength = 128, kSymbols = 256;
  const int64_t products = layers * 8 * width * width + width * kSymbols;  // multiply-adds for a token
  return {.name = name,
          .spec = spec_of("lstm", {{"layers", {layers}}, {"channels", {width}}}),
          .sample = {kLength},
          .classes = kSymbols,
          .batch = batch,
          .forward_gflop = 2e-9 * static_cast<double>(products * kLength)};
}

// ELECTRA's small networks, for sequences of 128 tokens.
ModelCase electra_case(const std::string& name, int64_t batch) {
  constexpr int64_t kLength = 128, kSymbols = 30522, kLayers = 12, kWidth = 256, kGenerator = 64, kEmbedding = 128;
  const auto layer = [](int64_t width) { return 12 * width * width + 2 * kLength * width; };
  const int64_t products = kLayers * (layer(kWidth) + layer(kGenerator)) + 2 * kEmbedding * (kWidth + kGenerator) +
                           kEmbedding * kSymbols + kWidth * kWidth;  // multiply-adds for a token
  return {.name = name,
          .spec = spec_of("electra-small"),
          .sample = {kLength},
          .classes = kSymbols,
          .batch = batch,
          .forward_gflop = 2e-9 * static_cast<double>(products * kLength),
          .masked = 0.15,
          .task = {.kind = "replaced_tokens"}};
}

const std::vector<ModelCase>& model_cases() {
  static const std::vector<ModelCase> all{
      image_case("resnet20", spec_of("resnet20"), 32, 10, 128, 2 * 0.0408),
      image_case("resnet18cifar", spec_of("resnet18", {{"stem", {std::string("cifar")}}}), 32, 10, 128, 2 * 0.5557),
      image_case("resnet50", spec_of("resnet50"), 224, 1000, 16, 2 * 4.089),
      image_case("vgg19cifar", spec_of("vgg19"), 32, 10, 128, 2 * 0.3981),
      image_case("mobilenetv2", spec_of("mobilenet_v2"), 224, 1000, 16, 2 * 0.3008),
      image_case("efficientnetb0", spec_of("efficientnet_b0"), 224, 1000, 16, 2 * 0.3858),
      image_case("shufflenetv2", spec_of("shufflenet_v2_x1_0"), 224, 1000, 16, 2 * 0.1446),
      image_case("vittiny", spec_of("vit_tiny"), 224, 1000, 16, 2 * 1.258),
      image_case("swint", spec_of("swin_t"), 224, 1000, 16, 2 * 4.491),
      box_case("yolov3", 4, 2 * 32.8),
      gpt_case("chargpt", 6, 6, 384, 256, 256, 16),
      mixture_case(gpt_case("chargpt", 6, 6, 384, 256, 256, 16)),
      gpt_case("gpt2", 12, 12, 768, 256, 50257, 4),
      lstm_case("lstm", 2, 512, 32),
      electra_case("electra", 8)};
  return all;
}

// Watches further steps. The last row is of all kernels, whose times overlap where there are several queues.
void add_kernels(const std::string& row, Trainer& trainer, int steps, int most, Report& report) {
  KernelWatch watch;
  for (int i = 0; i < steps; ++i) trainer.step();
  trainer.settle();  // a step ends before its kernels, which would count as 0 s
  KernelTime all;
  for (const KernelTime& kernel : watch.take()) {
    all.launches += kernel.launches;
    all.seconds += kernel.seconds;
    if (most-- > 0) report.add_kernel(row, kernel.name, kernel.seconds / steps, kernel.launches / steps);
  }
  report.add_kernel(row, "all kernels", all.seconds / steps, all.launches / steps);
}

}  // namespace

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ModelCase& c : model_cases()) names.push_back(c.name);
  return names;
}

std::vector<std::string> shardable_model_names() {
  std::vector<std::string> names;
  for (const ModelCase& c : model_cases())
    if (c.is_transformer()) names.push_back(c.name);
  return names;
}

const ModelCase& model_case(const std::string& name) {
  for (const ModelCase& c : model_cases())
    if (name == c.name) return c;
  throw UsageError(fmt::format("bench: unknown network '{}'; there are {}", name, fmt::join(model_names(), ", ")));
}

void run_model(const std::string& name, int64_t batch, const TrainerOptions& options, int warm_up, int repeat,
               int kernels, Report& report) {
  const ModelCase& model = model_case(name);
  MemoryWatch memory(options.device);
  Trainer trainer(model, batch == 0 ? model.batch : batch, options);
  if (options.graphs) warm_up = std::max(warm_up, 2);  // graphs are recorded in the second step
  int done = 0;
  const double seconds = median_seconds(warm_up, repeat, [&] {
    trainer.step();
    if (++done == warm_up) memory.steady();
  });
  const std::string row = options.graphs ? name + ", graphs" : name;
  report.add(row, seconds, trainer.gflop(), 0.0, trainer.items(), trainer.unit(), memory.figures());
  if (kernels > 0) add_kernels(row, trainer, repeat, kernels, report);
}

void run_in_shards(const std::string& name, int64_t batch, const TrainerOptions& options,
                   const std::vector<int>& shards, int warm_up, int repeat, Report& report) {
  const ModelCase& model = model_case(name);
  std::vector<std::unique_ptr<Trainer>> trainers;
  for (const int count : shards) {
    TrainerOptions own = options;
    own.shards = count;
    trainers.push_back(std::make_unique<Trainer>(model, batch == 0 ? model.batch : batch, own));
  }
  std::vector<std::vector<double>> times(shards.size()), longer(shards.size());
  for (int round = 0; round < warm_up + repeat; ++round) {
    std::vector<double> seconds;
    for (const auto& trainer : trainers) seconds.push_back(seconds_of([&] { trainer->step(); }));
    for (size_t i = 0; round >= warm_up && i < seconds.size(); ++i) {
      times[i].push_back(seconds[i]);
      longer[i].push_back(100 * (seconds[i] / seconds[0] - 1));
    }
  }
  for (size_t i = 0; i < shards.size(); ++i)
    report.add(fmt::format("{}, virtual shards {}", name, shards[i]), median(times[i]), trainers[i]->gflop(), 0.0,
               trainers[i]->items(), trainers[i]->unit(), {{"longer_percent", rounded(median(longer[i]))}});
}

}  // namespace elinvar::bench
