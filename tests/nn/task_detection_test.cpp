// The task of detection: where boxes belong, what is found, and what is refused. tests/models/yolo_test.cpp compares
// its loss and gradients with PyTorch.
#include <gtest/gtest.h>

#include <cmath>

#include "nn/anchors.h"
#include "nn/detection.h"
#include "nn/micro_batch.h"
#include "nn/task.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

using test::message_of;

constexpr int64_t kThreeClasses = 3;
// Two scales over images of 32 pixels: 1 cell of 3 rows, then 2 x 2 cells of 3.
const std::vector<double> kFewAnchors = {4, 4, 8, 4, 4, 8, 16, 16, 24, 12, 16, 16};
constexpr int64_t kFewRows = 15, kFewNumbers = 8;

MadeTask small_detection(std::map<std::string, Value> settings = {}) {
  Spec spec{.kind = "detection"};
  settings.emplace("anchors", kFewAnchors);
  for (auto& [name, value] : settings) spec.settings[name] = {std::move(value)};
  return make_task(spec, {}, {.sample = {4, 5}, .dtype = DType::f32, .classes = kThreeClasses});
}

Tensor targets_of(const std::vector<std::vector<float>>& boxes, int64_t rows) {
  Tensor targets = Tensor::full({1, rows, 5}, -1);
  for (size_t i = 0; i < boxes.size(); ++i) std::copy_n(boxes[i].data(), 5, targets.data<float>() + 5 * i);
  return targets;
}

int64_t row_of(const std::vector<float>& box) {
  return Anchors(kFewAnchors, 32).assign(targets_of({box}, 1), kFewRows, kThreeClasses).row.data<int64_t>()[0];
}

TEST(Detection, BoxesBelongToTheNearestAnchorsCell) {
  const float half = 0.5f, quarter = 0.25f, eighth = 0.125f;
  EXPECT_EQ(row_of({0, 0.3f, 0.3f, half, half}), 0);  // of two equal anchors the first
  EXPECT_EQ(row_of({0, 0.3f, 0.9f, 0.75f, 0.375f}), 1);
  EXPECT_EQ(row_of({2, 0.2f, 0.2f, eighth, eighth}), 3);           // the finer scale, its first cell
  EXPECT_EQ(row_of({2, 0.7f, 0.2f, quarter, eighth}), 3 + 3 + 1);  // to the right
  EXPECT_EQ(row_of({2, 0.2f, 0.7f, eighth, quarter}), 3 + 6 + 2);  // below
  EXPECT_EQ(row_of({2, 1.0f, 1.0f, eighth, eighth}), 3 + 9);       // the border belongs to the last cell
  EXPECT_EQ(row_of({2, 0.5f, 0.4999f, eighth, eighth}), 3 + 3);
}

// Logits that say "nothing here", and then a box in some rows.
Tensor quiet_output() {
  Tensor output = Tensor::zeros({1, kFewRows, kFewNumbers});
  for (int64_t row = 0; row < kFewRows; ++row)
    for (int64_t k = 4; k < kFewNumbers; ++k) output.data<float>()[row * kFewNumbers + k] = -20;
  return output;
}

void set_row(Tensor& output, int64_t row, const std::vector<float>& numbers) {
  std::copy_n(numbers.data(), numbers.size(), output.data<float>() + row * kFewNumbers);
}

TEST(Detection, FindsWhatTheOutputSays) {
  const MadeTask made = small_detection();
  Tensor output = quiet_output();
  // Row 7: the cell to the right, the anchor of 8 x 4 pixels; the centre in the middle of the cell.
  set_row(output, 7, {0, 0, 0, std::log(2.0f), 9, -9, 9, -9});
  set_row(output, 8, {0, 0, std::log(2.0f), 0, 8, -9, 9, -9});  // the same box, by the anchor of 4 x 8 pixels
  const auto& detector = dynamic_cast<const Detector&>(*made.task.operator->());
  const std::vector<Detection> found = detector.detect(output).at(0);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].label, 1);
  EXPECT_NEAR(found[0].score, 1 / ((1 + std::exp(-9.0)) * (1 + std::exp(-9.0))), 1e-6);  // of float32
  const Box expected{0.75f - 0.125f, 0.25f - 0.125f, 0.75f + 0.125f, 0.25f + 0.125f};
  EXPECT_NEAR(intersection_over_union(found[0].box, expected), 1, 1e-5);  // of float32

  const Tensor right = targets_of({{1, 0.75f, 0.25f, 0.25f, 0.25f}}, 4),
               wrong = targets_of({{0, 0.75f, 0.25f, 0.25f, 0.25f}}, 4);
  const BatchScore hit = evaluate(output, right, made.task), miss = evaluate(output, wrong, made.task);
  EXPECT_EQ(hit.count, 1);
  EXPECT_DOUBLE_EQ(made.task->metrics(hit).at("map50"), 1);
  EXPECT_DOUBLE_EQ(made.task->metrics(hit).at("map"), 1);
  EXPECT_DOUBLE_EQ(made.task->metrics(miss).at("map50"), 0);
  EXPECT_LT(hit.loss_sum, 1);
  EXPECT_GT(miss.loss_sum, 15);
  EXPECT_FALSE(made.task->has_accuracy());
}

TEST(Detection, TheLossOfAnImageWithoutBoxesIsItsObjectness) {
  const MadeTask made = small_detection({{"objectness_weight", 0.5}});
  Tensor output = quiet_output();
  set_row(output, 3, {1, 2, 3, 4, 1.5f, 0, 7, 0});
  const double expected = 0.5 * (std::log1p(std::exp(1.5)) + 14 * std::log1p(std::exp(-20.0)));
  EXPECT_NEAR(evaluate(output, targets_of({}, 4), made.task).loss_sum, expected, 1e-6);  // of float32
}

TEST(Detection, NearRowsDoNotCount) {
  Tensor output = quiet_output();
  set_row(output, 7, {0, 0, 0, std::log(2.0f), 20, -20, 20, -20});
  set_row(output, 8, {0, 0, std::log(2.0f), 0, 6, -20, -20, -20});  // the same box, though row 7 is responsible
  const Tensor target = targets_of({{1, 0.75f, 0.25f, 0.25f, 0.2f}}, 4);
  const auto loss = [&](double ignore_overlap) {
    return evaluate(output, target, small_detection({{"ignore_overlap", ignore_overlap}}).task).loss_sum;
  };
  EXPECT_NEAR(loss(1.0) - loss(0.5), std::log1p(std::exp(6.0)), 1e-4);  // of float32
}

TEST(Detection, PaddingChangesNoBit) {
  const MadeTask made = small_detection();
  Tensor output = quiet_output();
  set_row(output, 7, {0.3f, -0.2f, 0.1f, 0.5f, 1, 0.25f, 0.5f, -2});
  const std::vector<std::vector<float>> boxes = {{1, 0.7f, 0.2f, 0.25f, 0.2f}, {2, 0.7f, 0.2f, 0.25f, 0.2f}};
  const double loss = evaluate(output, targets_of(boxes, 2), made.task).loss_sum;
  EXPECT_EQ(evaluate(output, targets_of(boxes, 4), made.task).loss_sum, loss);
  EXPECT_GT(loss, evaluate(output, targets_of({boxes[0]}, 2), made.task).loss_sum);
}

TEST(Detection, WhatDoesNotFitIsNamed) {
  const auto refusal = [](const TargetInfo& targets, std::map<std::string, Value> settings = {}) {
    Spec spec{.kind = "detection"};
    for (auto& [name, value] : settings) spec.settings[name] = {std::move(value)};
    return message_of<UsageError>([&] { make_task(spec, {}, targets); });
  };
  const TargetInfo boxes{.sample = {4, 5}, .dtype = DType::f32, .classes = 3};
  EXPECT_NE(refusal({.sample = {}, .dtype = DType::i64, .classes = 3}).find("= 'detection' needs boxes"),
            std::string::npos);
  EXPECT_NE(refusal({.sample = {4, 5}, .dtype = DType::f32}).find("and 0 classes"), std::string::npos);
  EXPECT_NE(refusal(boxes, {{"anchors", std::vector<double>{1, 2, 3, 4}}}).find("of 3 anchors for each scale, got 4"),
            std::string::npos);
  EXPECT_NE(refusal(boxes, {{"box_loss", std::string("iou")}}).find("box_loss"), std::string::npos);

  const MadeTask made = small_detection();
  const auto wrong = [&](const std::vector<float>& box) {
    return message_of<UsageError>([&] { evaluate(quiet_output(), targets_of({box}, 4), made.task); });
  };
  EXPECT_NE(wrong({3, 0.5f, 0.5f, 0.1f, 0.1f}).find("labels are from 0 to 2, got 3"), std::string::npos);
  EXPECT_NE(wrong({1.5f, 0.5f, 0.5f, 0.1f, 0.1f}).find("got 1.5"), std::string::npos);
  EXPECT_NE(wrong({1, 0.5f, 0.5f, 0, 0.1f}).find("sides within an image of sides 1"), std::string::npos);
  EXPECT_NE(wrong({1, 1.5f, 0.5f, 0.1f, 0.1f}).find("got centre (1.5, 0.5)"), std::string::npos);
  EXPECT_NE(wrong({1, NAN, 0.5f, 0.1f, 0.1f}).find("got centre (nan, 0.5)"), std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] {
              evaluate(Tensor::zeros({1, kFewRows, 7}), targets_of({}, 4), made.task);
            }).find("outputs (N, rows, 8) expected, as of a network of kind 'yolov3', got (1, 15, 7)"),
            std::string::npos);
  EXPECT_NE(message_of<UsageError>([&] {
              evaluate(Tensor::zeros({1, 16, 8}), targets_of({}, 4), made.task);
            }).find("16 predictions for an image are not those of 2 scales"),
            std::string::npos);
}

}  // namespace
}  // namespace elinvar
