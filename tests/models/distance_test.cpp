// Checks that ten steps of networks of full depth are as close to exact arithmetic as PyTorch's float32. Losses and
// weights are compared with a run of PyTorch in float64 (golden/make_golden.py wrote and describes the files).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "tensor/base/check.h"
#include "tensor/safetensors.h"
#include "tests/models/hashed_inputs.h"
#include "tests/places.h"

namespace elinvar {
namespace {

// Returns at most 16 values at even distances. Biases of keys are left out: no loss depends on them, so their gradients
// are rounding noise, which AdamW scales to steps of the full learning rate.
std::vector<double> sampled(const Parameter& parameter) {
  const Tensor t = parameter.var.value().to_contiguous();
  const std::span<const float> all = t.span<float>();
  std::vector<double> values(all.begin(), all.end());
  if (parameter.name.ends_with("c_attn.bias")) {
    const auto third = static_cast<std::ptrdiff_t>(values.size() / 3);
    values.erase(values.begin() + third, values.begin() + 2 * third);
  }
  const size_t stride = std::max<size_t>(1, values.size() / 16);
  std::vector<double> sample;
  for (size_t i = 0; i < values.size() && sample.size() < 16; i += stride) sample.push_back(values[i]);
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

struct DistanceCase {
  const char* name;
  Spec model;
  InputInfo info;
  OptimizerConfig optimizer;
};

struct Distances {
  double losses, weights;
};

// Trains on one batch. Returns the distances from the values of the golden file under this prefix.
Distances distances_of(const DistanceCase& c, const StateDict& golden, const std::string& prefix, const Tensor& input,
                       const Tensor& target) {
  const auto network = build(c.model, c.info, 1);
  Parameters& parameters = network->parameters;
  fill_initial(parameters);
  for (Parameter& p : parameters.list)
    if (p.name.ends_with("bn3.weight"))  // at full gains one step of 16 blocks turns a difference of 1e-6 into 1e-2
      for (float& gain : p.var.mutable_value().span<float>()) gain /= 8;
  Distance losses, weights;
  train_ten_steps(*network, c.optimizer, input, target, {}, [&](int64_t step, double loss, const std::vector<Tensor>&) {
    losses.add(loss - golden.at(prefix + "losses").data<double>()[step]);
  });
  for (const Parameter& parameter : parameters.list) {
    const std::vector<double> sample = sampled(parameter);
    const Tensor& expected = golden.at(prefix + "weights/" + parameter.name);
    invariant(static_cast<int64_t>(sample.size()) == expected.numel(), parameter.name.c_str());
    for (size_t i = 0; i < sample.size(); ++i) weights.add(sample[i] - expected.data<double>()[i]);
  }
  return {losses.value(), weights.value()};
}

// Compares geometric means over several batches, because the distance of a single run varies by a factor of three, in
// PyTorch too.
void compare(const DistanceCase& c, int batches) {
  constexpr double kMost = 1.2;  // of PyTorch's distance
  const StateDict golden =
      read_safetensors(std::string(ELINVAR_SOURCE_DIR "/tests/golden/distance_") + c.name + ".safetensors").tensors;
  double losses = 1, weights = 1;
  for (int b = 0; b < batches; ++b) {
    const std::string number = std::to_string(b), prefix = number + "/";
    const bool text = c.info.dtype == DType::i32;
    const Tensor input = text ? integers<int32_t>("input" + number, {16, c.info.sample[0]}, 256)
                              : images(16, c.info.sample[0], "input" + number);
    const Tensor target = text ? integers<int64_t>("target" + number, {16, c.info.sample[0]}, 256)
                               : integers<int64_t>("target" + number, {16}, 10);
    const Distances here = distances_of(c, golden, prefix, input, target);
    const double* pytorch = golden.at(prefix + "float32").data<double>();
    losses *= std::pow(here.losses / pytorch[0], 1.0 / batches);
    weights *= std::pow(here.weights / pytorch[1], 1.0 / batches);
  }
  EXPECT_LE(losses, kMost);
  EXPECT_LE(weights, kMost);
  std::printf("%s: %.2f times PyTorch's distance of losses, %.2f of weights\n", c.name, losses, weights);
}

using List = std::vector<int64_t>;
const OptimizerConfig kMeasuredSgd{.kind = "sgd", .lr = 1e-3, .momentum = 0.9, .weight_decay = 1e-3};
const OptimizerConfig kMeasuredAdamW{.kind = "adamw", .lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1};
const InputInfo kMeasuredTokens{.sample = {32}, .classes = 256, .dtype = DType::i32};

TEST(Distance, ResNet50) {
  const Spec model = spec("resnet", {{"blocks", List{3, 4, 6, 3}},
                                     {"widths", List{64, 128, 256, 512}},
                                     {"bottleneck", true},
                                     {"stem", std::string("imagenet")}});
  compare({"resnet50", model, {.sample = {64, 64, 3}, .classes = 10}, kMeasuredSgd}, 3);
}

TEST(Distance, Vgg16) {
  compare(
      {"vgg16", spec("vgg16", {{"head", std::string("cifar")}}), {.sample = {32, 32, 3}, .classes = 10}, kMeasuredSgd},
      3);
}

TEST(Distance, Gpt2) {
  const Spec model = spec(
      "gpt", {{"layers", int64_t{12}}, {"heads", int64_t{12}}, {"channels", int64_t{192}}, {"context", int64_t{32}}});
  compare({"gpt2", model, kMeasuredTokens, kMeasuredAdamW}, 6);
}

TEST(Distance, Llama) {
  const Spec model = spec("llama", {{"layers", int64_t{12}},
                                    {"heads", int64_t{12}},
                                    {"kv_heads", int64_t{4}},
                                    {"channels", int64_t{192}},
                                    {"hidden", int64_t{512}}});
  compare({"llama", model, kMeasuredTokens, kMeasuredAdamW}, 6);
}

}  // namespace
}  // namespace elinvar
