// Compares small networks of the kinds yolov3 and yolov3_tiny, and the loss of detection, with PyTorch in float64
// (golden/make_yolo.py wrote and describes the files).
#include <gtest/gtest.h>

#include "models/build.h"
#include "nn/task.h"
#include "tensor/safetensors.h"
#include "tests/models/golden_network.h"
#include "tests/models/hashed_inputs.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

constexpr int64_t kBoxClasses = 3, kBoxSide = 64, kMostBoxes = 4;

Tensor hashed_boxes(int64_t images) {
  Tensor boxes = Tensor::full({images, kMostBoxes, 5}, -1);
  const auto number = [](const char* name, int64_t i) { return hashed(key_of(name), i) * 0x1p-24; };
  for (int64_t i = 0; i < images * kMostBoxes; ++i) {
    float* const box = boxes.data<float>() + 5 * i;
    if (i % kMostBoxes == kMostBoxes - 1) continue;  // padding
    box[0] = static_cast<float>(hashed(key_of("label"), i) % kBoxClasses);
    box[1] = static_cast<float>(0.05 + 0.9 * number("x", i));
    box[2] = static_cast<float>(0.05 + 0.9 * number("y", i));
    box[3] = static_cast<float>(0.05 + 0.7 * number("w", i));
    box[4] = static_cast<float>(0.05 + 0.7 * number("h", i));
  }
  return boxes;
}

MadeTask detection_of(std::vector<double> anchors, const char* box_loss) {
  return make_task(elinvar::spec("detection", {{"anchors", std::move(anchors)}, {"box_loss", std::string(box_loss)}}),
                   {}, {.sample = {kMostBoxes, 5}, .dtype = DType::f32, .classes = kBoxClasses});
}

void compare_detector(const char* name, const Spec& model, const MadeTask& made) {
  const StateDict golden =
      read_safetensors(std::string(ELINVAR_SOURCE_DIR "/tests/golden/") + name + ".safetensors").tensors;
  const auto network = build(model, {.sample = {kBoxSide, kBoxSide, 3}, .classes = made.outputs}, 1);
  fill_initial(network->parameters);
  const Inputs input = elinvar::images(2, kBoxSide);
  const OptimizerConfig sgd{.kind = "sgd", .lr = 1e-5, .momentum = 0.9, .weight_decay = 1e-3};
  train_ten_steps(*network, sgd, input, hashed_boxes(2), made.task,
                  [&](int64_t step, double loss, const std::vector<Tensor>& gradients) {
                    const double expected = golden.at("losses").data<float>()[step];
                    EXPECT_NEAR(loss, expected, kGoldenTolerance * expected) << "step " << step;
                    for (size_t i = 0; i < gradients.size() && step == 0; ++i) {
                      const Tensor& wanted = golden.at("grad/" + network->parameters.list[i].name);
                      const int64_t apart = std::max<int64_t>(1, gradients[i].numel() / 32);
                      Tensor sample = Tensor::empty(wanted.shape());
                      for (int64_t k = 0; k < sample.numel(); ++k)
                        sample.data<float>()[k] = gradients[i].data<float>()[k * apart];
                      EXPECT_LE(golden_difference(sample, wanted), kGoldenTolerance)
                          << network->parameters.list[i].name;
                    }
                  });
  EXPECT_LE(golden_difference(logits_of(*network, input), golden.at("eval_logits")), 5 * kGoldenTolerance);
}

TEST(Yolo, V3) {
  compare_detector("yolov3",
                   elinvar::spec("yolov3", {{"channels", int64_t{2}}, {"blocks", std::vector<int64_t>{1, 0, 1, 1, 1}}}),
                   detection_of({4, 5, 6, 9, 10, 7, 12, 20, 20, 14, 18, 30, 30, 26, 40, 50, 60, 56}, "giou"));
}

TEST(Yolo, V3Tiny) {
  compare_detector("yolov3_tiny", elinvar::spec("yolov3_tiny", {{"channels", int64_t{1}}}),
                   detection_of({6, 8, 10, 14, 16, 12, 20, 28, 34, 24, 48, 50}, "diou"));
}

TEST(Yolo, WhatDoesNotFitIsNamed) {
  const auto refusal = [](const InputInfo& info, const char* kind = "yolov3_tiny") {
    return test::message_of<UsageError>([&] { build(elinvar::spec(kind, {}), info, 1); });
  };
  EXPECT_NE(refusal({.sample = {64, 96, 3}, .classes = 8}).find("square images whose side is a multiple of 32"),
            std::string::npos);
  EXPECT_NE(refusal({.sample = {48, 48, 3}, .classes = 8}).find("got 48 x 48"), std::string::npos);
  EXPECT_NE(refusal({.sample = {64, 64, 3}, .classes = 5}).find("use it with task.kind = 'detection'"),
            std::string::npos);
  // The network of two scales beside anchors of three.
  const MadeTask made = detection_of({1, 2, 3, 4, 5, 6}, "giou");
  EXPECT_NE(test::message_of<UsageError>([&] {
              evaluate(Tensor::zeros({1, 60, made.outputs}), hashed_boxes(1), made.task);
            }).find("60 predictions for an image are not those of 1 scales of 3 anchors"),
            std::string::npos);
}

}  // namespace
}  // namespace elinvar
