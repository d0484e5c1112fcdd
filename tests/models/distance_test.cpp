// Ten steps of networks of full depth are as near to exact arithmetic as PyTorch's float32: their losses and weights
// are compared with a run of PyTorch in float64 (golden/make_golden.py wrote and describes the files).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "nn/micro_batch.h"
#include "nn/optimizer.h"
#include "nn/running_statistics.h"
#include "tensor/safetensors.h"
#include "tests/models/hashed_inputs.h"
#include "tests/places.h"

namespace elinvar {
namespace {

// Returns at most 64 values at even distances. Biases of keys are left out: no loss depends on them, so their gradients
// are rounding noise, which AdamW scales to steps of the full learning rate.
std::vector<double> sampled(const Parameter& parameter) {
  const Tensor t = parameter.var.value().to_contiguous();
  const std::span<const float> all = t.span<float>();
  std::vector<double> values(all.begin(), all.end());
  if (parameter.name.ends_with("c_attn.bias")) {
    const auto third = static_cast<std::ptrdiff_t>(values.size() / 3);
    values.erase(values.begin() + third, values.begin() + 2 * third);
  }
  const size_t stride = std::max<size_t>(1, values.size() / 64);
  std::vector<double> sample;
  for (size_t i = 0; i < values.size() && sample.size() < 64; i += stride) sample.push_back(values[i]);
  return sample;
}

// The root mean square of differences.
class Distance {
 public:
  void add(double difference) {
    sum_ += difference * difference;
    ++count_;
  }
  double value() const { return std::sqrt(sum_ / static_cast<double>(count_)); }

 private:
  double sum_ = 0;
  int64_t count_ = 0;
};

void compare(const char* name, const Spec& model, const InputInfo& info, const Tensor& input, const Tensor& target,
             const OptimizerConfig& config) {
  const StateDict golden =
      read_safetensors(std::string(ELINVAR_SOURCE_DIR "/tests/golden/distance_") + name + ".safetensors").tensors;
  const auto network = build(model, info, 1);
  Parameters& parameters = network->parameters;
  fill_initial(parameters);
  for (Parameter& p : parameters.list)
    if (p.name.ends_with("bn3.weight"))  // with the full branches of 16 blocks one step makes 1e-6 to 1e-2
      for (float& gain : p.var.mutable_value().span<float>()) gain /= 8;
  if (config.kind == "adamw") exempt_from_decay(parameters, std::vector<std::string>{"vectors"});
  const auto optimizer = make_optimizer(config, parameters);

  Distance of_losses, of_weights;
  for (int64_t step = 0; step < 10; ++step) {
    MicroBatchResult result = micro_batch_gradient(*network, input, target, {}, Rng{.seed = 1});
    const auto count = static_cast<double>(result.count);
    of_losses.add(result.loss_sum / count - golden.at("losses").data<double>()[step]);
    for (Tensor& g : result.gradients)
      for (float& x : g.span<float>()) x = static_cast<float>(x / count);
    optimizer->step(parameters, result.gradients, config.lr, step);
    update_running_statistics(result.statistics, batch_statistics_of(result.statistics), 1);
  }
  for (const Parameter& parameter : parameters.list) {
    const std::vector<double> sample = sampled(parameter);
    const Tensor& expected = golden.at("weights/" + parameter.name);
    ASSERT_EQ(static_cast<int64_t>(sample.size()), expected.numel()) << parameter.name;
    for (size_t i = 0; i < sample.size(); ++i) of_weights.add(sample[i] - expected.data<double>()[i]);
  }
  constexpr double kMost = 1.2;  // of PyTorch's distance
  const double* pytorch = golden.at("float32").data<double>();
  EXPECT_LE(of_losses.value(), kMost * pytorch[0]) << "losses";
  EXPECT_LE(of_weights.value(), kMost * pytorch[1]) << "weights";
  ::testing::Test::RecordProperty("losses", std::to_string(of_losses.value() / pytorch[0]));
  ::testing::Test::RecordProperty("weights", std::to_string(of_weights.value() / pytorch[1]));
}

using List = std::vector<int64_t>;
const OptimizerConfig kSgd{.kind = "sgd", .lr = 1e-3, .momentum = 0.9, .weight_decay = 1e-3};
const OptimizerConfig kAdamW{.kind = "adamw", .lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1};
const InputInfo kTokens{.sample = {32}, .classes = 256, .dtype = DType::i32};

TEST(Distance, ResNet50) {
  compare("resnet50",
          spec("resnet", {{"blocks", List{3, 4, 6, 3}},
                          {"widths", List{64, 128, 256, 512}},
                          {"bottleneck", true},
                          {"stem", std::string("imagenet")}}),
          {.sample = {64, 64, 3}, .classes = 10}, images(16, 64), integers<int64_t>("target", {16}, 10), kSgd);
}

TEST(Distance, Vgg16) {
  compare("vgg16", spec("vgg", {{"depth", int64_t{16}}, {"head", std::string("cifar")}}),
          {.sample = {32, 32, 3}, .classes = 10}, images(16, 32), integers<int64_t>("target", {16}, 10), kSgd);
}

TEST(Distance, Gpt2) {
  compare("gpt2",
          spec("gpt",
               {{"layers", int64_t{12}}, {"heads", int64_t{12}}, {"channels", int64_t{192}}, {"context", int64_t{32}}}),
          kTokens, integers<int32_t>("input", {16, 32}, 256), integers<int64_t>("target", {16, 32}, 256), kAdamW);
}

TEST(Distance, Llama) {
  compare("llama",
          spec("llama", {{"layers", int64_t{12}},
                         {"heads", int64_t{12}},
                         {"kv_heads", int64_t{4}},
                         {"channels", int64_t{192}},
                         {"hidden", int64_t{512}}}),
          kTokens, integers<int32_t>("input", {16, 32}, 256), integers<int64_t>("target", {16, 32}, 256), kAdamW);
}

}  // namespace
}  // namespace elinvar
