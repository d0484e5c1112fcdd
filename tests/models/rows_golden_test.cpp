// Compares networks and tasks for rows of numbers and categories with PyTorch in float64 (golden/make_rows.py).
#include <gtest/gtest.h>

#include <cmath>

#include "models/build.h"
#include "tensor/safetensors.h"
#include "tests/models/golden_network.h"
#include "tests/models/hashed_inputs.h"
#include "tests/models/row_inputs.h"
#include "tests/places.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

Tensor outputs_of(const Network& network, const Inputs& inputs) { return predict(network, std::span(&inputs, 1)); }

void compare_rows(const std::string& name, const Spec& model, const RowCase& rows, const Spec& task,
                  const Tensor& target) {
  constexpr double kTolerance = 2e-5;  // roundings to float32 over ten steps, as in golden_test.cpp
  const StateDict golden =
      read_safetensors(std::string(ELINVAR_SOURCE_DIR "/tests/golden/rows_") + name + ".safetensors").tensors;
  const auto network = build(model, rows.info, 1);
  fill_initial(network->parameters);
  EXPECT_LE(golden_difference(outputs_of(*network, rows.inputs), golden.at("outputs")), kTolerance);
  const MadeTask made = make_task(task, {}, {.sample = {}, .dtype = DType::f32});
  EXPECT_EQ(made.outputs, 1);
  train_ten_steps(*network, {.kind = "sgd", .lr = 0.05, .momentum = 0.9, .weight_decay = 1e-3}, rows.inputs, target,
                  made.task, [&](int64_t step, double loss, const std::vector<Tensor>& gradients) {
                    const double expected = golden.at("losses").data<float>()[step];
                    EXPECT_NEAR(loss, expected, kTolerance * expected) << "step " << step;
                    if (step > 0) return;
                    for (size_t i = 0; i < gradients.size(); ++i) {
                      const std::string& parameter = network->parameters.list[i].name;
                      EXPECT_LE(golden_difference(gradients[i], golden.at("grad/" + parameter)), kTolerance)
                          << parameter;
                    }
                  });
  EXPECT_LE(golden_difference(outputs_of(*network, rows.inputs), golden.at("eval_outputs")), 5 * kTolerance);
}

Tensor hard_targets() { return integers<int64_t>("target", {kRows}, 2).to(DType::f32); }
Tensor soft_targets() {
  Tensor t = Tensor::empty({kRows});
  for (int64_t i = 0; i < kRows; ++i) t.data<float>()[i] = static_cast<float>(hashed(key_of("target"), i) * 0x1p-24);
  return t;
}

using List = std::vector<int64_t>;

TEST(RowsGolden, DlrmWithFocalLoss) {
  compare_rows("dlrm_focal", spec_of("dlrm", {{"channels", int64_t{3}}, {"bottom", List{5}}, {"top", List{6, 4}}}),
               numbers_and_categories(), spec_of("binary", {{"focal_gamma", 1.5}, {"positive_weight", 2.0}}),
               hard_targets());
}

TEST(RowsGolden, DeepFmWithHuberLoss) {
  compare_rows("deepfm_huber", spec_of("deepfm", {{"channels", int64_t{3}}, {"deep", List{6, 4}}}),
               numbers_and_categories(), spec_of("regression", {{"loss", std::string("huber")}, {"delta", 0.25}}),
               soft_targets());
}

TEST(RowsGolden, NeuMfWithBinaryCrossEntropyOfProbabilities) {
  compare_rows("neumf_binary", spec_of("neumf", {{"factors", int64_t{3}}, {"layers", List{7, 4}}}),
               pairs_of_categories(), spec_of("binary", {{"positive_weight", 3.0}}), soft_targets());
}

TEST(RowsGolden, NeuMfWithAbsoluteErrors) {
  compare_rows("neumf_mae", spec_of("neumf", {{"factors", int64_t{3}}, {"layers", List{7, 4}}}), pairs_of_categories(),
               spec_of("regression", {{"loss", std::string("mae")}}), soft_targets());
}

TEST(Rows, WhatDoesNotFitIsNamed) {
  const auto refusal = [](const char* kind, const InputInfo& info) {
    return test::message_of<UsageError>([&] { build(spec_of(kind, {}), info, 1); });
  };
  const InputInfo images{.sample = {8, 8, 3}, .classes = 1}, numbers{.sample = {4}, .classes = 1};
  InputInfo two = numbers_and_categories().info;
  EXPECT_NE(refusal("dlrm", images).find("takes rows of numbers and categories"), std::string::npos);
  EXPECT_NE(refusal("dlrm", numbers).find("multiplies vectors of two columns"), std::string::npos);
  EXPECT_NE(refusal("neumf", two).find("the data have 3 and 4"), std::string::npos) << refusal("neumf", two);
  two.classes = 2;
  EXPECT_NE(refusal("deepfm", two).find("predicts one number, but the data have 2"), std::string::npos);

  RowCase rows = numbers_and_categories();
  const auto network = build(spec_of("dlrm", {}), rows.info, 1);
  rows.inputs.further[0].data<int32_t>()[4] = 5;
  EXPECT_EQ(test::message_of<UsageError>([&] { outputs_of(*network, rows.inputs); }),
            "[embedding] category 5 of sample 1, column 1, is not in [0, 5)");
}

}  // namespace
}  // namespace elinvar
