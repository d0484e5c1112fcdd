// Compares four small networks with PyTorch in float64 (golden/make_golden.py wrote and describes the files).
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/precision.h"
#include "models/build.h"
#include "tensor/isa.h"
#include "tensor/safetensors.h"
#include "tensor/state.h"
#include "tensor/stream.h"
#include "tests/models/golden_network.h"
#include "tests/models/hashed_inputs.h"
#include "tests/places.h"

namespace elinvar {
namespace {

struct Golden {
  const char* name;
  Spec model;
  InputInfo info;
  Tensor input, target;
  OptimizerConfig optimizer;
  CrossEntropyOptions loss = {};
  int shards = 1;
};

Tensor forward(const Network& network, const Tensor& input, bool training) {
  const NoGrad constant;
  Context context;
  context.training = training;
  return network.forward(input, context).value();
}

// Returns the gradients of the parameters by name, those of shards joined.
StateDict whole_of(const Parameters& parameters, const std::vector<Tensor>& gradients) {
  Parameters holder;
  for (size_t i = 0; i < gradients.size(); ++i) {
    holder.list.push_back(parameters.list[i]);
    holder.list[i].var = Var(gradients[i]);
  }
  return holder.whole_state();
}

constexpr double kFloat32 = 2e-5;  // roundings to float32, in PyTorch's order and in ours, over ten steps

void compare(const Golden& c, double tolerance = kFloat32) {
  const StateDict golden =
      read_safetensors(std::string(ELINVAR_SOURCE_DIR "/tests/golden/") + c.name + ".safetensors").tensors;
  const auto whole = build(c.model, c.info, 1);
  fill_initial(whole->parameters);
  Spec model = c.model;
  if (c.shards > 1) model.settings["virtual_shards"] = {int64_t{c.shards}};
  const auto network = build(model, c.info, 1);
  Parameters& parameters = network->parameters;
  parameters.load_whole(whole->parameters.state());
  EXPECT_LE(golden_difference(forward(*network, c.input, true), golden.at("logits")), tolerance);

  train_ten_steps(*network, c.optimizer, c.input, c.target, c.loss,
                  [&](int64_t step, double loss, const std::vector<Tensor>& gradients) {
                    const double expected = golden.at("losses").data<float>()[step];
                    EXPECT_NEAR(loss, expected, tolerance * expected) << "step " << step;
                    if (step > 0) return;
                    for (const auto& [name, got] : whole_of(parameters, gradients)) {
                      const Tensor& wanted = golden.at("grad/" + name);
                      // Adding a constant to every key changes no softmax: such gradients are rounding noise on both
                      // sides.
                      if (name.ends_with("c_attn.bias")) {
                        const int64_t channels = got.dim(0) / 3;
                        for (int64_t k = channels; k < 2 * channels; ++k)
                          EXPECT_LE(std::abs(got.data<float>()[k]), 1e-8) << name;
                      }
                      EXPECT_LE(golden_difference(got, wanted), tolerance) << name;
                    }
                  });
  EXPECT_LE(golden_difference(forward(*network, c.input, false), golden.at("eval_logits")), 5 * tolerance);
}

using List = std::vector<int64_t>;
const OptimizerConfig kSgd{.kind = "sgd", .lr = 0.05, .momentum = 0.9, .weight_decay = 1e-3};
const OptimizerConfig kAdamW{.kind = "adamw", .lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1};
const InputInfo kTokens{.sample = {12}, .classes = 40, .dtype = DType::i32};

Golden basic_blocks() {
  return {"resnet_basic",
          spec("resnet", {{"blocks", List{1, 1}}, {"widths", List{8, 16}}}),
          {.sample = {16, 16, 3}, .classes = 10},
          images(4, 16),
          integers<int64_t>("target", {4}, 10),
          kSgd};
}

TEST(Golden, ResNetOfBasicBlocks) { compare(basic_blocks()); }

TEST(Golden, UNet) {
  compare({"unet",
           spec("unet", {{"channels", int64_t{4}}, {"levels", int64_t{2}}}),
           {.sample = {8, 8, 3}, .classes = 3},
           images(2, 8),
           integers<int64_t>("target", {2, 8, 8}, 3),
           kSgd});
}

// Factors of 14 bits are as accurate as NUMERICS.md says, and their results are the same on every machine: the digest
// covers parameters and running statistics after ten steps.
TEST(Golden, ResNetWithExactNumerics) {
  const PrecisionScope products(Precision::exact);
  compare(basic_blocks(), 5e-2);
  for (const Isa isa : available_isas())
    for (const int threads : {1, 3}) {
      set_isa(isa);
      CpuStream stream(threads);
      const StreamScope scope(stream);
      const Golden c = basic_blocks();
      const auto network = build(c.model, c.info, 1);
      fill_initial(network->parameters);
      train_ten_steps(*network, c.optimizer, c.input, c.target, c.loss, [](auto&&...) {});
      EXPECT_EQ(digest(network->parameters.state()).hex(), "8b02c5db8c0238fef5783ae83b756f8c")
          << name_of(isa) << ", " << threads << " threads";
    }
  set_isa(available_isas().back());
}

TEST(Golden, ResNetOfBottlenecksWithLabelSmoothing) {
  OptimizerConfig nesterov = kSgd;
  nesterov.nesterov = true;
  compare(
      {"resnet_bottleneck",
       spec("resnet",
            {{"blocks", List{1, 1}}, {"widths", List{4, 8}}, {"bottleneck", true}, {"stem", std::string("imagenet")}}),
       {.sample = {32, 32, 3}, .classes = 10},
       images(4, 32),
       integers<int64_t>("target", {4}, 10),
       nesterov,
       {.label_smoothing = 0.1}});
}

TEST(Golden, Gpt) {
  for (const int shards : {1, 2, 3}) {
    SCOPED_TRACE(shards);
    compare({"gpt",
             spec("gpt",
                  {{"layers", int64_t{2}}, {"heads", int64_t{3}}, {"channels", int64_t{24}}, {"context", int64_t{16}}}),
             kTokens, integers<int32_t>("input", {3, 12}, 40), integers<int64_t>("target", {3, 12}, 40), kAdamW,
             CrossEntropyOptions{}, shards});
  }
}

TEST(Golden, Llama) {
  for (const int shards : {1, 2}) {
    SCOPED_TRACE(shards);
    compare({"llama",
             spec("llama", {{"layers", int64_t{2}},
                            {"heads", int64_t{6}},
                            {"kv_heads", int64_t{2}},
                            {"channels", int64_t{24}},
                            {"hidden", int64_t{32}}}),
             kTokens, integers<int32_t>("input", {3, 12}, 40), integers<int64_t>("target", {3, 12}, 40), kAdamW,
             CrossEntropyOptions{}, shards});
  }
}

}  // namespace
}  // namespace elinvar
