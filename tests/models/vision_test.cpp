// Compares image classifiers with torchvision's in float64 (golden/make_vision.py wrote and describes the files).
#include <gtest/gtest.h>

#include <cmath>

#include "models/build.h"
#include "models/published.h"
#include "tensor/safetensors.h"
#include "tensor/state.h"
#include "tests/models/hashed_inputs.h"
#include "tests/places.h"

namespace elinvar {
namespace {

// Where another batch norm follows, the loss does not depend on the bias of one, so its gradient is rounding noise.
constexpr double kNoise = 1e-6;

struct VisionCase {
  const char* file;
  Spec model;
  int64_t side;
};

void PrintTo(const VisionCase& c, std::ostream* out) { *out << c.file; }

std::vector<VisionCase> vision_cases() {
  const auto n = [](int64_t number) { return Value{number}; };
  return {
      {"mobilenet_v2", elinvar::spec("mobilenet_v2", {{"width", 0.5}, {"depth", 0.34}, {"dropout", 0.0}}), 24},
      {"wide_resnet", elinvar::spec("wide_resnet", {{"depth", n(10)}, {"widen", n(2)}}), 16},
      {"vit",
       elinvar::spec("vit_b_16",
                     {{"patch", n(8)}, {"layers", n(2)}, {"heads", n(3)}, {"channels", n(48)}, {"hidden", n(96)}}),
       32},
      {"shufflenet_v2", elinvar::spec("shufflenet_v2_x0_5", {}), 64},
      {"efficientnet",
       elinvar::spec("efficientnet_b0", {{"width", 0.25}, {"depth", 0.5}, {"dropout", 0.0}, {"stochastic_depth", 0.0}}),
       64},
      {"swin",
       elinvar::spec("swin_t", {{"patch", n(2)},
                                {"channels", n(16)},
                                {"window", n(4)},
                                {"blocks", std::vector<int64_t>{2, 2, 2}},
                                {"heads", std::vector<int64_t>{2, 4, 4}},
                                {"stochastic_depth", 0.0}}),
       26}};
}

class Vision : public testing::TestWithParam<VisionCase> {
 protected:
  Vision()
      : golden_(
            read_safetensors(std::string(ELINVAR_SOURCE_DIR "/tests/golden/vision_") + GetParam().file + ".safetensors")
                .tensors),
        network_(build(GetParam().model, info(), 1, &model_)) {
    fill_initial(network_->parameters);
  }
  static InputInfo info() { return {.sample = {GetParam().side, GetParam().side, 3}, .classes = 10}; }

  // The largest difference must be at most `tolerance` of the largest magnitude.
  void expect_close(const Tensor& got, const std::string& name, double tolerance) const {
    const Tensor& expected = golden_.at(name);
    ASSERT_EQ(got.numel(), expected.numel()) << name;
    double worst = 0, largest = 0;
    for (int64_t i = 0; i < got.numel(); ++i) {
      const double a = got.data<float>()[i], b = expected.data<float>()[i];
      worst = std::isnan(a) ? INFINITY : std::max(worst, std::abs(a - b));
      largest = std::max(largest, std::abs(b));
    }
    EXPECT_LE(worst, std::max(tolerance * largest, kNoise)) << name;
  }

  const StateDict golden_;
  Spec model_;
  std::unique_ptr<Network> network_;
};
INSTANTIATE_TEST_SUITE_P(, Vision, testing::ValuesIn(vision_cases()),
                         [](const auto& param) { return std::string(param.param.file); });

// At most 16 values at even distances, as make_golden.py takes them.
Tensor sampled(const Tensor& whole) {
  const int64_t step = std::max<int64_t>(1, whole.numel() / 16), count = (whole.numel() + step - 1) / step;
  Tensor some = Tensor::empty({std::min<int64_t>(16, count)});
  for (int64_t i = 0; i < some.numel(); ++i) some.data<float>()[i] = whole.data<float>()[i * step];
  return some;
}

TEST_P(Vision, HasTorchvisionsLogitsAndGradients) {
  const Tensor input = elinvar::images(4, GetParam().side), target = integers<int64_t>("target", {4}, 10);
  const auto logits = [&](bool training) {
    const NoGrad constant;
    Context context{.training = training};
    return network_->forward(input, context).value();
  };
  expect_close(logits(true), "logits", 1e-4);
  MicroBatchResult result = micro_batch_gradient(*network_, input, target, {}, Rng{.seed = 1});
  for (size_t i = 0; i < result.gradients.size(); ++i) {
    Tensor gradient = sampled(result.gradients[i].to_contiguous());
    for (float& x : gradient.span<float>()) x /= 4;
    expect_close(gradient, "grad/" + network_->parameters.list[i].name, 1e-4);
  }
  update_running_statistics(result.statistics, batch_statistics_of(result.statistics), 1);
  expect_close(logits(false), "eval_logits", 1e-4);
}

TEST(VisionInShards, TransformersHaveNearlyTheSameLogits) {
  for (const VisionCase& c : vision_cases()) {
    if (c.file != std::string("vit") && c.file != std::string("swin")) continue;
    const InputInfo info{.sample = {c.side, c.side, 3}, .classes = 10};
    const auto whole = build(c.model, info, 1);
    fill_initial(whole->parameters);
    Spec cut = c.model;
    cut.settings["virtual_shards"] = {int64_t{2}};
    const auto in_shards = build(cut, info, 1);
    in_shards->parameters.load_whole(whole->parameters.state());
    const auto logits = [&](const Network& network) {
      const NoGrad constant;
      Context context;
      return network.forward(elinvar::images(4, c.side), context).value();
    };
    const Tensor expected = logits(*whole), got = logits(*in_shards);
    for (int64_t i = 0; i < got.numel(); ++i)
      EXPECT_NEAR(got.data<float>()[i], expected.data<float>()[i], 1e-5) << c.file;
  }
}

TEST_P(Vision, IsExportedWithTorchvisionsNamesAndShapes) {
  const StateDict exported = published_for_class(model_, network_->parameters.whole_state());
  std::map<std::string, std::vector<int64_t>> expected, got;
  for (const auto& [name, extents] : golden_) {
    if (!name.starts_with("shape/")) continue;
    std::vector<int64_t>& shape = expected[name.substr(6)];
    for (int64_t i = 0; i < extents.numel(); ++i) shape.push_back(extents.data<int64_t>()[i]);
  }
  for (const auto& [name, tensor] : exported)
    got[name] = std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end());
  EXPECT_EQ(got, expected);

  const auto again = build(GetParam().model, info(), 2);
  load_published(model_, *again, exported);
  EXPECT_EQ(digest(again->parameters.state()), digest(network_->parameters.state()));
}

}  // namespace
}  // namespace elinvar
