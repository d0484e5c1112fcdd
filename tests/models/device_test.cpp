// Whole networks on devices other than the CPU: the same losses and the same state, bit for bit. op_row.h tests single
// ops, and mixed_job_test.cpp whole jobs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <set>

#include "autograd/precision.h"
#include "models/build.h"
#include "nn/clip.h"
#include "nn/micro_batch.h"
#include "nn/optimizer.h"
#include "nn/running_statistics.h"
#include "tensor/ops/attention.h"
#include "tensor/ops/batch_norm.h"
#include "tensor/ops/conv2d.h"
#include "tensor/ops/cross_entropy.h"
#include "tensor/ops/layer_norm.h"
#include "tensor/ops/matmul.h"
#include "tensor/ops/optimizer.h"
#include "tensor/ops/pointwise.h"
#include "tensor/ops/pool.h"
#include "tensor/ops/reduce.h"
#include "tensor/ops/rotary.h"
#include "tensor/ops/softmax.h"
#include "tests/models/pair_inputs.h"
#include "tests/models/row_inputs.h"
#include "tests/ops/op_inputs.h"
#include "tests/support/other_devices.h"
#include "tests/support/temporary_folder.h"

namespace elinvar::test {
namespace {

using List = std::vector<int64_t>;

Spec spec(const std::string& kind, std::map<std::string, Value> settings) {
  Spec s{.kind = kind};
  for (auto& [name, value] : settings) s.settings[name] = {std::move(value)};
  return s;
}

struct Trained {
  std::vector<uint64_t> losses;  // bits
  Digest state;
};

Trained train(Device device, const Spec& model, const InputInfo& info, const elinvar::Inputs& input,
              const Tensor& target, const OptimizerConfig& options, const Task& task) {
  const auto network = build(model, info, 1);
  Parameters& parameters = network->parameters;
  parameters.move_to(device);
  const auto optimizer = make_optimizer(options, parameters);
  Trained result;
  for (int64_t step = 0; step < 3; ++step) {
    MicroBatchResult found = micro_batch_gradient(*network, {input.first.to(device), input.further}, target, task,
                                                  Rng{.seed = 1, .step = static_cast<uint32_t>(step)});
    result.losses.push_back(std::bit_cast<uint64_t>(found.loss_sum));
    const Clipping clipping = clip_by_global_norm(found.gradients, 1.0);
    optimizer->step(parameters, found.gradients, options.lr, step, clipping.scale);
    update_running_statistics(found.statistics, batch_statistics_of(found.statistics), 1);
  }
  StateDict state = parameters.state();
  for (const auto& [name, tensor] : state) EXPECT_TRUE(tensor.device() == device) << name;
  for (const auto& [name, tensor] : optimizer->state()) state.emplace("optimizer." + name, tensor);
  result.state = digest(state);
  return result;
}

Tensor labels(const Shape& shape, int64_t classes) {
  return make_inputs({{shape, Input::Kind::index, classes}}, "labels")[0];
}

class OnDevice : public ::testing::TestWithParam<Device> {
 protected:
  void SetUp() override {
    if (!is_here(device_)) GTEST_SKIP() << "this machine has no GPU";
  }

  // Trains on the CPU and on the device.
  void expect_same(const Spec& model, const InputInfo& info, const elinvar::Inputs& input, const Tensor& target,
                   const OptimizerConfig& options, const Task& task = {},
                   const std::vector<Precision>& precisions = {Precision::portable, Precision::exact}) const {
    std::set<std::string> states;
    for (const Precision precision : precisions) {
      SCOPED_TRACE(name_of(precision));
      const PrecisionScope products(precision);
      const Trained here = train({}, model, info, input, target, options, task);
      EXPECT_TRUE(states.insert(here.state.hex()).second) << "numerics differ in their bits";
      const Trained there = train(device_, model, info, input, target, options, task);
      EXPECT_EQ(there.losses, here.losses);
      EXPECT_EQ(there.state.hex(), here.state.hex());
    }
  }

  void expect_same_classifier(const Spec& model) const {
    expect_same(model, {.sample = {8, 8, 3}, .classes = 10}, normal({2, 8, 8, 3}, "images"), labels({2}, 10),
                {.kind = "sgd", .lr = 0.05, .momentum = 0.9, .weight_decay = 1e-3}, {}, {Precision::portable});
  }

  const Device device_ = GetParam();
};
INSTANTIATE_TEST_SUITE_P(, OnDevice, ::testing::ValuesIn(devices_of_the_build()),
                         [](const auto& param) { return std::string(name_of(param.param.kind)); });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(OnDevice);

const InputInfo kDeviceTokens{.sample = {12}, .classes = 40, .dtype = DType::i32};

TEST_P(OnDevice, AResNetHasTheSameBits) {
  expect_same(spec("resnet", {{"blocks", List{1, 1}}, {"widths", List{8, 16}}}), {.sample = {16, 16, 3}, .classes = 10},
              normal({4, 16, 16, 3}, "images"), labels({4}, 10),
              {.kind = "sgd", .lr = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 1e-3});
}

TEST_P(OnDevice, AMobileNetHasTheSameBits) {
  expect_same_classifier(spec("mobilenet_v2", {{"width", 0.1}, {"depth", 0.1}}));
}

TEST_P(OnDevice, AnEfficientNetWithStochasticDepthHasTheSameBits) {
  expect_same_classifier(spec("efficientnet_b0", {{"width", 0.1}, {"depth", 0.1}, {"stochastic_depth", 0.5}}));
}

TEST_P(OnDevice, AShuffleNetHasTheSameBits) { expect_same_classifier(spec("shufflenet_v2_x0_5", {})); }

TEST_P(OnDevice, AVisionTransformerHasTheSameBits) {
  expect_same_classifier(spec("vit_tiny", {{"layers", int64_t{2}}, {"channels", int64_t{24}}, {"dropout", 0.1}}));
}

TEST_P(OnDevice, ASwinTransformerHasTheSameBits) {
  expect_same_classifier(spec("swin_t", {{"patch", int64_t{2}},
                                         {"channels", int64_t{16}},
                                         {"window", int64_t{2}},
                                         {"blocks", List{2, 1}},
                                         {"heads", List{2, 4}}}));
}

TEST_P(OnDevice, AYoloThatFindsBoxesHasTheSameBits) {
  const std::vector<float> boxes = {0, 0.3f, 0.3f,  0.2f, 0.4f, 2,  0.7f, 0.6f, 0.5f, 0.5f,  //
                                    1, 0.5f, 0.75f, 0.6f, 0.3f, -1, 0,    0,    0,    0};
  for (const char* box_loss : {"giou", "diou"}) {
    const MadeTask made =
        make_task(spec("detection", {{"anchors", std::vector<double>{4, 4, 8, 4, 4, 8, 16, 16, 24, 12, 12, 24}},
                                     {"box_loss", std::string(box_loss)}}),
                  {}, {.sample = {2, 5}, .dtype = DType::f32, .classes = 3});
    expect_same(spec("yolov3_tiny", {{"channels", int64_t{1}}}), {.sample = {32, 32, 3}, .classes = made.outputs},
                normal({2, 32, 32, 3}, "images"), Tensor::from(boxes, {2, 2, 5}), {.kind = "adam", .lr = 3e-3},
                made.task, {Precision::portable});
  }
}

TEST_P(OnDevice, AGptWithDropoutHasTheSameBits) {
  expect_same(spec("gpt", {{"layers", int64_t{2}}, {"heads", int64_t{2}}, {"channels", int64_t{32}}, {"dropout", 0.1}}),
              kDeviceTokens, labels({2, 12}, 40).to(DType::i32), labels({2, 12}, 40),
              {.kind = "adamw", .lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1});
}

TEST_P(OnDevice, AGptWithExpertsHasTheSameBits) {
  expect_same(spec("gpt", {{"layers", int64_t{1}},
                           {"heads", int64_t{2}},
                           {"channels", int64_t{32}},
                           {"experts", int64_t{4}},
                           {"capacity_factor", 1.0},
                           {"virtual_shards", int64_t{2}}}),
              kDeviceTokens, labels({2, 12}, 40).to(DType::i32), labels({2, 12}, 40),
              {.kind = "adamw", .lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1});
}

TEST_P(OnDevice, ALlamaWithExpertsHasTheSameBits) {
  expect_same(spec("llama", {{"layers", int64_t{1}},
                             {"heads", int64_t{2}},
                             {"channels", int64_t{32}},
                             {"hidden", int64_t{40}},
                             {"experts", int64_t{3}},
                             {"capacity_factor", 1.0},
                             {"virtual_shards", int64_t{2}}}),
              kDeviceTokens, labels({2, 12}, 40).to(DType::i32), labels({2, 12}, 40),
              {.kind = "adamw", .lr = 3e-3, .weight_decay = 0.1});
}

TEST_P(OnDevice, ALlamaHasTheSameBits) {
  expect_same(spec("llama", {{"layers", int64_t{2}},
                             {"heads", int64_t{4}},
                             {"kv_heads", int64_t{2}},
                             {"channels", int64_t{32}},
                             {"hidden", int64_t{48}}}),
              kDeviceTokens, labels({2, 12}, 40).to(DType::i32), labels({2, 12}, 40),
              {.kind = "lamb", .lr = 3e-3, .weight_decay = 0.1});
}

TEST_P(OnDevice, AnLstmHasTheSameBits) {
  expect_same(spec("lstm", {{"channels", int64_t{16}}, {"hidden", int64_t{20}}, {"dropout", 0.1}}), kDeviceTokens,
              labels({2, 12}, 40).to(DType::i32), labels({2, 12}, 40),
              {.kind = "adamw", .lr = 3e-3, .weight_decay = 0.1});
}

TEST_P(OnDevice, NetworksInVirtualShardsHaveTheSameBits) {
  const Tensor input = labels({2, 12}, 40).to(DType::i32), target = labels({2, 12}, 40);
  expect_same(spec("gpt", {{"layers", int64_t{2}},
                           {"heads", int64_t{4}},
                           {"channels", int64_t{32}},
                           {"dropout", 0.1},
                           {"virtual_shards", int64_t{4}}}),
              kDeviceTokens, input, target, {.kind = "adamw", .lr = 3e-3, .weight_decay = 0.1});
  for (const char* optimizer : {"lamb", "lars"})
    expect_same(spec("llama", {{"layers", int64_t{1}},
                               {"heads", int64_t{6}},
                               {"kv_heads", int64_t{3}},
                               {"channels", int64_t{48}},
                               {"hidden", int64_t{40}},
                               {"virtual_shards", int64_t{3}}}),
                kDeviceTokens, input, target, {.kind = optimizer, .lr = 3e-3, .weight_decay = 0.1});
}

TEST_P(OnDevice, NetworksAndTasksForRowsHaveTheSameBits) {
  const Tensor target = labels({kRows}, 2).to(DType::f32);
  const TargetInfo number{.sample = {}, .dtype = DType::f32};
  const auto task = [&](const std::string& kind, const std::map<std::string, Value>& settings) {
    return make_task(spec_of(kind, settings), {}, number).task;
  };
  const RowCase both = numbers_and_categories(), pairs = pairs_of_categories(), bags = numbers_and_bags();
  const OptimizerConfig adam{.kind = "adam", .lr = 3e-3};
  expect_same(spec("dlrm", {{"channels", int64_t{6}}}), both.info, both.inputs, target, adam,
              task("binary", {{"focal_gamma", 1.5}, {"positive_weight", 2.0}}));
  expect_same(spec("deepfm", {}), both.info, both.inputs, target, adam,
              task("regression", {{"loss", std::string("huber")}, {"delta", 0.25}}));
  expect_same(spec("dlrm", {{"channels", int64_t{6}}}), bags.info, bags.inputs, target, adam, task("binary", {}));
  expect_same(spec("deepfm", {{"bags", std::string("mean")}}), bags.info, bags.inputs, target, adam,
              task("binary", {}));
  expect_same(spec("neumf", {}), pairs.info, pairs.inputs, target, adam,
              task("regression", {{"loss", std::string("mae")}}));
}

TEST_P(OnDevice, ABertOfTextsOfDifferentLengthsHasTheSameBits) {
  const InputInfo info{.sample = {12},
                       .classes = 5,
                       .dtype = DType::i32,
                       .symbols = {40},
                       .further = {{.sample = {1}, .dtype = DType::i32, .symbols = {13}}}};
  const Tensor lengths = Tensor::from(std::vector<int32_t>{12, 5}, {2, 1});
  expect_same(
      spec("bert",
           {{"layers", int64_t{2}}, {"heads", int64_t{2}}, {"channels", int64_t{32}}, {"head", std::string("pooled")}}),
      info, {labels({2, 12}, 40).to(DType::i32), {lengths}}, labels({2}, 5),
      {.kind = "adamw", .lr = 3e-3, .weight_decay = 0.1});
}

TEST_P(OnDevice, AnElectraHasTheSameBits) {
  const InputInfo info{
      .sample = {12}, .classes = 40, .dtype = DType::i32, .further = {{.sample = {12}, .dtype = DType::i32}}};
  const Tensor target = labels({2, 12}, 40);
  expect_same(spec("electra", {{"layers", int64_t{1}}, {"heads", int64_t{4}}, {"channels", int64_t{32}}}), info,
              {labels({2, 12}, 40).to(DType::i32), {target.to(DType::i32)}}, target,
              {.kind = "adamw", .lr = 3e-3, .weight_decay = 0.1},
              make_task({.kind = "replaced_tokens"}, {}, {.sample = {12}, .classes = 40}).task);
}

TEST_P(OnDevice, AT5OfPairsOfTextsHasTheSameBits) {
  expect_same(spec("t5", {{"layers", int64_t{1}},
                          {"heads", int64_t{2}},
                          {"channels", int64_t{16}},
                          {"hidden", int64_t{24}},
                          {"gated", true}}),
              pair_info(), pair_inputs(), next_of_pairs(), {.kind = "adamw", .lr = 3e-3, .weight_decay = 0.1});
}

TEST_P(OnDevice, OperandsOfTwoDevicesAreRefused) {
  const Tensor a = Tensor::zeros({2}), b = a.to(device_);
  EXPECT_NE(message_of<UsageError>([&] { add(a, b); }).find("operands must be on one device"), std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] { b.data<float>(); }).find("bring them here with to(Device{})"),
            std::string::npos);
  EXPECT_EQ(sum(b).item(), 0.0);
}

SgdArgs constants(int64_t n) {
  SgdArgs a;
  a.n = n;
  return a;
}

TEST_P(OnDevice, WhatLiesElsewhereThanTheFirstOperandIsRefused) {
  const auto refuses = [](const char* what, auto call) {
    const std::string message = message_of<UsageError>(call);
    EXPECT_NE(message.find("must be on one device"), std::string::npos) << what << ": " << message;
  };
  const Tensor x = Tensor::zeros({2, 3}, DType::f32, device_), here = Tensor::zeros({3}), there = here.to(device_);
  refuses("bias of matmul", [&] { matmul(x, Tensor::zeros({3, 3}, DType::f32, device_), here); });
  const Tensor image = Tensor::zeros({1, 2, 2, 1}, DType::f32, device_);
  refuses("bias of conv2d", [&] { conv2d(image, image, Tensor::zeros({1}), {}); });
  refuses("gamma of batch_norm", [&] { batch_norm_factors(there, there, here, there, 1e-5); });
  const BatchNormFactors factors{there, there, there, here};
  refuses("factors of batch_norm", [&] { batch_norm_apply(x, factors, {}, false); });
  refuses("factors of its gradient", [&] { batch_norm_sums(x, x, {}, factors, ReluMask::none, false); });
  refuses("r of row_norm_backward", [&] {
    row_norm_backward(RowNorm::rms, x, x, {}, {{}, {}, Tensor::zeros({2})}, true, false);
  });
  refuses("angles of rotary", [&] {
    rotary(Tensor::zeros({1, 2, 1, 2}, DType::f32, device_), rotary_angles(2, 1, {10.0}, 0, DType::f32), false);
  });
  const Tensor q = Tensor::zeros({1, 2, 1, 4}, DType::f32, device_);
  const AttentionResult result = attention(q, q, q, true, 0.0);
  refuses("m of attention", [&] {
    attention_backward(q, q, q, q, {result.o, result.m.to(Device{}), result.r}, true, 0.0);
  });
  const CrossEntropyResult saved = cross_entropy(x, Tensor::zeros({2}, DType::i32), 0.0, -1);
  refuses("m of cross_entropy", [&] {
    cross_entropy_backward(Tensor::zeros({}, DType::f32, device_), x,
                           {saved.loss, saved.targets, saved.m.to(Device{}), saved.r}, 0.0, -1);
  });
  refuses("the second parameter", [&] {
    const std::vector<Tensor> g = {there, here};
    std::vector<Tensor> p = {there.clone(), here.clone()}, v;
    sgd(g, p, v, {constants(3), constants(3)});
  });
}

TEST_P(OnDevice, GpusComputeInFloat32) {
  const Tensor x = Tensor::zeros({2, 4}, DType::f64, device_), image = x.reshape({1, 2, 2, 2});
  const auto refuses = [](const char* what, auto call) {
    const std::string message = message_of<UsageError>(call);
    EXPECT_NE(message.find("GPUs compute in float32, got float64"), std::string::npos) << what << ": " << message;
  };
  refuses("softmax", [&] { softmax(x); });
  refuses("log_softmax", [&] { log_softmax(x); });
  refuses("softmax_backward", [&] { softmax_backward(x, x); });
  refuses("exp", [&] { exp(x); });
  refuses("add", [&] { add(x, x); });
  refuses("sum", [&] { sum(x); });
  refuses("matmul", [&] { matmul(x, x.transpose(0, 1)); });
  refuses("layer_norm", [&] { layer_norm(x, {}, {}, 1e-5); });
  const PoolAxis axis = pool_axis("max_pool2d", 2, 2, 1, 0);
  refuses("max_pool", [&] { max_pool(image, axis, axis, nullptr); });
  refuses("avg_pool_backward", [&] { avg_pool_backward(image.slice(1, 0, 1).slice(2, 0, 1), axis, axis, true); });
  refuses("sgd", [&] {
    std::vector<Tensor> p = {x}, v;
    sgd({x}, p, v, {constants(8)});
  });
}

TEST(Device, WordsForDevices) {
  EXPECT_TRUE(parse_device("cpu") == Device{});
  EXPECT_NE(message_of<UsageError>([] { parse_device("tpu"); }).find("auto, cpu, cuda or cuda:NUMBER expected"),
            std::string::npos);
  EXPECT_NE(message_of<UsageError>([] { parse_device("cuda:x"); }).find("expected, got 'cuda:x'"), std::string::npos);
  EXPECT_NE(message_of<UsageError>([] { parse_device("cuda:99"); }), "");
}

}  // namespace
}  // namespace elinvar::test
