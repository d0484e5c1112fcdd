// Tasks: the losses that training minimises, and the metrics of validation, against formulas in binary64.
#include "nn/task.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <span>

#include "nn/micro_batch.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

using test::message_of;

const TargetInfo kNumber{.sample = {}, .dtype = DType::f32};

Spec task_spec(const std::string& kind, std::map<std::string, Value> settings = {}) {
  Spec s{.kind = kind};
  for (auto& [name, value] : settings) s.settings[name] = {std::move(value)};
  return s;
}

Task task(const std::string& kind, std::map<std::string, Value> settings = {}) {
  return make_task(task_spec(kind, std::move(settings)), {}, kNumber).task;
}

Tensor random_numbers(int64_t n, double deviation, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, static_cast<float>(deviation));
  Tensor t = Tensor::empty({n});
  for (float& x : t.span<float>()) x = normal(random);
  return t;
}

Tensor random_labels(int64_t n, unsigned seed) {
  Tensor t = random_numbers(n, 1, seed);
  for (float& x : t.span<float>()) x = x > 0.3f ? 1.0f : 0.0f;
  return t;
}

// The score of outputs (n) as a network gives them, (n, 1).
BatchScore score_of(const Task& of, const Tensor& outputs, const Tensor& targets) {
  return evaluate(outputs.reshape({outputs.numel(), 1}), targets, of);
}

TEST(Regression, LossesFollowTheirFormulas) {
  const Tensor x = random_numbers(50, 2, 1), y = random_numbers(50, 2, 2);
  double squares = 0, magnitudes = 0, huber = 0;
  for (int64_t i = 0; i < 50; ++i) {
    const double d = std::abs(static_cast<double>(x.data<float>()[i]) - y.data<float>()[i]);
    squares += d * d;
    magnitudes += d;
    huber += d < 0.5 ? d * d / 2 : 0.5 * (d - 0.25);
  }
  EXPECT_NEAR(score_of(task("regression"), x, y).loss_sum, squares, 1e-5 * squares);
  EXPECT_NEAR(score_of(task("regression", {{"loss", std::string("mae")}}), x, y).loss_sum, magnitudes,
              1e-5 * magnitudes);
  EXPECT_NEAR(score_of(task("regression", {{"loss", std::string("huber")}, {"delta", 0.5}}), x, y).loss_sum, huber,
              1e-5 * huber);
}

TEST(Regression, MetricsAreOfAllNumbers) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 4, 9}, {2, 2}),
               y = Tensor::from(std::vector<float>{1, 4, 4, 7}, {2, 2});
  const Task of = make_task(task_spec("regression"), {}, {.sample = {2}, .dtype = DType::f32}).task;
  const BatchScore score = evaluate(x, y, of);
  EXPECT_EQ(score.count, 4);
  const auto metrics = of->metrics(score);
  EXPECT_DOUBLE_EQ(metrics.at("mae"), 1.0);
  EXPECT_DOUBLE_EQ(metrics.at("rmse"), std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(metrics.at("r2"), 1 - 8.0 / 18.0);  // the targets' mean is 4
  EXPECT_FALSE(of->has_accuracy());
}

// The sums of batches are added in order, so the parts of a split have the bits of the whole only batch by batch.
TEST(Regression, BatchesAddUp) {
  const Task of = task("regression");
  const Tensor x = random_numbers(40, 2, 3), y = random_numbers(40, 2, 4);
  BatchScore total = score_of(of, x.slice(0, 0, 25).to_contiguous(), y.slice(0, 0, 25).to_contiguous());
  total.add(score_of(of, x.slice(0, 25, 40).to_contiguous(), y.slice(0, 25, 40).to_contiguous()));
  const BatchScore whole = score_of(of, x, y);
  EXPECT_EQ(total.count, 40);
  EXPECT_NEAR(of->metrics(total).at("r2"), of->metrics(whole).at("r2"), 1e-12);
}

TEST(Binary, LossIsTheCrossEntropyEvenOfLargeLogits) {
  const Tensor x = Tensor::from(std::vector<float>{-60, -3, 0, 0.5, 4, 60, 120, -120}, {8}),
               y = Tensor::from(std::vector<float>{0, 1, 0.25, 1, 0, 1, 0, 1}, {8});
  double expected = 0;
  for (int64_t i = 0; i < 8; ++i) {
    const double logit = x.data<float>()[i], p = y.data<float>()[i];
    expected += p * (std::max(-logit, 0.0) + std::log1p(std::exp(-std::abs(logit)))) +
                (1 - p) * (std::max(logit, 0.0) + std::log1p(std::exp(-std::abs(logit))));
  }
  EXPECT_NEAR(score_of(task("binary"), x, y).loss_sum, expected, 1e-5 * expected);
  // Where the prediction is right and sure, the loss is tiny but not zero: nothing cancels.
  const Tensor sure = Tensor::from(std::vector<float>{30}, {1}), one = Tensor::from(std::vector<float>{1}, {1});
  EXPECT_NEAR(score_of(task("binary"), sure, one).loss_sum, std::exp(-30.0), 1e-5 * std::exp(-30.0));
}

TEST(Binary, AreaUnderTheCurveCountsPairs) {
  const Task of = task("binary");
  for (const unsigned seed : {1u, 2u, 3u}) {
    Tensor x = random_numbers(200, 3, seed), y = random_labels(200, seed + 10);
    // As many bits as count, so that many are equal.
    for (float& v : x.span<float>()) v = std::round(v * 4) / 4;
    double ordered = 0, pairs = 0;
    int64_t right = 0;
    for (int64_t i = 0; i < 200; ++i) {
      const float a = x.data<float>()[i];
      right += (a > 0) == (y.data<float>()[i] > 0.5f);
      for (int64_t j = 0; j < 200; ++j) {
        if (y.data<float>()[i] < 0.5f || y.data<float>()[j] > 0.5f) continue;
        const float b = x.data<float>()[j];
        ordered += a > b ? 1 : a == b ? 0.5 : 0;
        ++pairs;
      }
    }
    BatchScore score = score_of(of, x.slice(0, 0, 90).to_contiguous(), y.slice(0, 0, 90).to_contiguous());
    score.add(score_of(of, x.slice(0, 90, 200).to_contiguous(), y.slice(0, 90, 200).to_contiguous()));
    EXPECT_DOUBLE_EQ(of->metrics(score).at("auc"), ordered / pairs);
    EXPECT_DOUBLE_EQ(of->metrics(score).at("accuracy"), static_cast<double>(right) / 200);
  }
}

TEST(Binary, F1IsOfPositivePredictions) {
  const Task of = task("binary");
  const auto f1 = [&](std::vector<float> x, std::vector<float> y) {
    const auto n = static_cast<int64_t>(x.size());
    return of->metrics(score_of(of, Tensor::from(x, {n}), Tensor::from(y, {n}))).at("f1");
  };
  EXPECT_DOUBLE_EQ(f1({1, 2, 3, -1, -2, 0}, {1, 1, 0, 1, 0, 0}), 4.0 / 6);
  EXPECT_DOUBLE_EQ(f1({-1, 0}, {0, 0}), 0);
}

TEST(Binary, AClassOfTwoIsALabel) {
  const MadeTask made = make_task(task_spec("binary"), {}, {.sample = {}, .dtype = DType::i64, .classes = 2});
  EXPECT_EQ(made.outputs, 1);
  const Tensor x = random_numbers(30, 1, 5), y = random_labels(30, 6);
  EXPECT_EQ(score_of(made.task, x, y.to(DType::i64)).loss_sum, score_of(made.task, x, y).loss_sum);
}

TEST(Segmentation, IouIsTheMeanOverClassesThatOccur) {
  const Task of = make_task(task_spec("segmentation"), {}, {.sample = {2, 3}, .dtype = DType::i64, .classes = 4}).task;
  const auto logits = [](const std::vector<int64_t>& classes) {
    Tensor x = Tensor::zeros({1, 2, 3, 4});
    for (size_t i = 0; i < classes.size(); ++i) x.data<float>()[4 * i + static_cast<size_t>(classes[i])] = 2;
    return x;
  };
  const auto targets = [](std::vector<int64_t> classes) { return Tensor::from(classes, {1, 2, 3}); };
  BatchScore score = evaluate(logits({0, 0, 1, 1, 2, 2}), targets({0, 0, 1, 2, 2, -100}), of);
  EXPECT_EQ(score.count, 5);
  // 0: 2 of 2, 1: 1 of 2, 2: 1 of 2; class 3 occurs nowhere.
  EXPECT_DOUBLE_EQ(of->metrics(score).at("iou"), (1 + 0.5 + 0.5) / 3);
  EXPECT_DOUBLE_EQ(of->metrics(score).at("accuracy"), 0.8);
  score.add(evaluate(logits({3, 3, 3, 3, 3, 3}), targets({2, 2, 2, 2, 2, 2}), of));
  EXPECT_DOUBLE_EQ(of->metrics(score).at("iou"), (1 + 0.5 + 1.0 / 8 + 0) / 4);
}

TEST(Classification, CountsTargetsAmongTheFirstK) {
  const MadeTask made = make_task(task_spec("classification", {{"top_k", int64_t{2}}}), {}, {.classes = 4});
  EXPECT_EQ(made.outputs, 4);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::from(std::vector<float>{4, 3, 2, 1, 4,   3, 2, 1, 4,   3, 2, 1, 1, 1, 1, 1,
                                                   1, 1, 1, 1, nan, 0, 0, 0, nan, 0, 0, 0, 9, 0, 0, 0},
                                {8, 4});
  // Among equal ones the lower classes come first; NaN comes last; the last target is ignored.
  const Tensor y = Tensor::from(std::vector<int64_t>{0, 1, 2, 1, 2, 0, 2, -100}, {8});
  BatchScore score = evaluate(x.slice(0, 0, 3).to_contiguous(), y.slice(0, 0, 3).to_contiguous(), made.task);
  score.add(evaluate(x.slice(0, 3, 8).to_contiguous(), y.slice(0, 3, 8).to_contiguous(), made.task));
  EXPECT_DOUBLE_EQ(made.task->metrics(score).at("top2_accuracy"), 4.0 / 7);
  EXPECT_DOUBLE_EQ(made.task->metrics(score).at("accuracy"), 1.0 / 7);
  EXPECT_FALSE(Task()->metrics(evaluate(x, y, Task())).contains("top2_accuracy"));
}

// The usual evaluation of recommendations, against the positions in a sorted list.
TEST(Ranking, HitRateAndNdcgAreOfTheRightCandidatesPlace) {
  constexpr int64_t kSamples = 60, kCandidates = 100;
  const Task of = make_task(task_spec("ranking", {{"at", int64_t{10}}}), {}, {.sample = {5}, .dtype = DType::f32}).task;
  Tensor x = random_numbers(kSamples * kCandidates, 1, 7).reshape({kSamples, kCandidates});
  Tensor y = Tensor::zeros({kSamples, kCandidates});
  double hits = 0, gain = 0;
  for (int64_t i = 0; i < kSamples; ++i) {
    const int64_t right = 13 * i % kCandidates;
    y.data<float>()[i * kCandidates + right] = 1;
    const std::span<float> scores(x.data<float>() + i * kCandidates, kCandidates);
    scores[static_cast<size_t>(right)] += 1.5f;
    std::vector<float> sorted(scores.begin(), scores.end());
    std::ranges::sort(sorted, std::greater());
    const auto place = std::ranges::find(sorted, scores[static_cast<size_t>(right)]) - sorted.begin();
    hits += place < 10;
    gain += place < 10 ? 1 / std::log2(static_cast<double>(place) + 2) : 0;
  }
  EXPECT_GT(hits, 10);
  EXPECT_LT(hits, 50);
  BatchScore score = evaluate(x.slice(0, 0, 25).to_contiguous(), y.slice(0, 0, 25).to_contiguous(), of);
  score.add(evaluate(x.slice(0, 25, 60).to_contiguous(), y.slice(0, 25, 60).to_contiguous(), of));
  EXPECT_EQ(score.count, kSamples * kCandidates);
  EXPECT_EQ(
      score.loss_sum,
      evaluate(x.slice(0, 0, 25).to_contiguous(), y.slice(0, 0, 25).to_contiguous(), task("binary")).loss_sum +
          evaluate(x.slice(0, 25, 60).to_contiguous(), y.slice(0, 25, 60).to_contiguous(), task("binary")).loss_sum);
  EXPECT_DOUBLE_EQ(of->metrics(score).at("hit_rate"), hits / kSamples);
  EXPECT_NEAR(of->metrics(score).at("ndcg"), gain / kSamples, 1e-12);  // a sum in another order
}

TEST(Ranking, TiesAndNaNAreNoHits) {
  const Task of = make_task(task_spec("ranking", {{"at", int64_t{1}}}), {}, {.sample = {3}, .dtype = DType::f32}).task;
  const auto hit_rate = [&](std::vector<float> x) {
    return of->metrics(evaluate(Tensor::from(x, {1, 3}), Tensor::from(std::vector<float>{1, 0, 0}, {1, 3}), of))
        .at("hit_rate");
  };
  EXPECT_EQ(hit_rate({1, 0, 0}), 1);
  EXPECT_EQ(hit_rate({0, 0, 0}), 0);
  EXPECT_EQ(hit_rate({std::numeric_limits<float>::quiet_NaN(), 0, 0}), 0);
  EXPECT_EQ(hit_rate({1, std::numeric_limits<float>::quiet_NaN(), 0}), 0);
  const auto refusal = [&](std::vector<float> y) {
    return message_of<UsageError>([&] { evaluate(Tensor::zeros({1, 3}), Tensor::from(y, {1, 3}), of); });
  };
  EXPECT_EQ(refusal({0, 0, 0}), "[ranking] one target of a sample must be 1, got 3 of 0");
  EXPECT_EQ(refusal({0, 0.5, 0}), "[ranking] one target of a sample must be 1 and the others 0, got 0.5 at 1");
  EXPECT_EQ(refusal({1, 0, 1}), "[ranking] one target of a sample must be 1 and the others 0, got 1 at 2 after 1 at 0");
}

TEST(Tasks, EqualKeysAreEqualTasks) {
  EXPECT_TRUE(Task() == Task(CrossEntropyOptions()));
  EXPECT_FALSE(Task() == Task(CrossEntropyOptions{.label_smoothing = 0.1}));
  EXPECT_TRUE(task("binary") == task("binary", {{"focal_gamma", 0.0}}));
  EXPECT_FALSE(task("binary") == task("binary", {{"focal_gamma", 2.0}}));
  EXPECT_FALSE(task("regression") == task("binary"));
}

TEST(Tasks, WhatDoesNotFitIsNamed) {
  const auto refusal = [](const Spec& spec, const TargetInfo& targets, const CrossEntropyOptions& options = {}) {
    return message_of<UsageError>([&] { make_task(spec, options, targets); });
  };
  const TargetInfo classes{.sample = {}, .dtype = DType::i64, .classes = 10};
  EXPECT_NE(refusal(task_spec("regresion"), kNumber).find("did you mean 'regression'"), std::string::npos);
  EXPECT_NE(refusal({}, kNumber).find("needs targets that are classes, but the data have numbers"), std::string::npos);
  EXPECT_NE(refusal(task_spec("regression"), classes).find("needs targets that are numbers"), std::string::npos);
  EXPECT_NE(refusal(task_spec("binary"), classes).find("int64 of shape () a sample and 10 classes"), std::string::npos);
  EXPECT_NE(refusal(task_spec("binary", {{"focal_gama", 1.0}}), kNumber).find("did you mean 'focal_gamma'"),
            std::string::npos);
  EXPECT_NE(refusal(task_spec("regression", {{"delta", 1.0}}), kNumber).find("delta"), std::string::npos);
  EXPECT_NE(refusal(task_spec("segmentation"), classes).find("needs a class for each pixel"), std::string::npos);
  EXPECT_NE(refusal(task_spec("ranking"), kNumber).find("needs several candidates in a sample"), std::string::npos);
  EXPECT_NE(refusal(task_spec("classification", {{"top_k", int64_t{11}}}), classes).find("top_k"), std::string::npos);
  EXPECT_NE(refusal(task_spec("binary"), kNumber, {.label_smoothing = 0.1}).find("loss.label_smoothing must be 0"),
            std::string::npos);

  const Tensor x = random_numbers(4, 1, 1).reshape({4, 1});
  EXPECT_EQ(message_of<UsageError>([&] {
              evaluate(x, Tensor::from(std::vector<float>{0, 1, 2, 0}, {4}), task("binary"));
            }),
            "[binary] targets are probabilities from 0 to 1, got 2");
  EXPECT_NE(message_of<UsageError>([&] {
              evaluate(x, random_numbers(3, 1, 1), task("regression"));
            }).find("outputs (4, 1) need as many float32 targets, got float32 (3,)"),
            std::string::npos);
}

// A program's own objective, as the documents show it.
class Largest final : public Objective {
 public:
  std::string key() const override { return "largest"; }
  int64_t count(const Targets& targets) const override { return targets.own.numel(); }
  LossAndTop1 loss(const ShardedLogits& output, const Targets&) const override {
    return {mse_loss(output.parts[0], Var(Tensor::zeros(output.parts[0].shape()))), {}};
  }
  std::map<std::string, double> metrics(const BatchScore&) const override { return {}; }
};

TEST(Tasks, ProgramsAddTheirOwn) {
  register_task({"largest", [](Settings& s, const TargetInfo&, const CrossEntropyOptions&) {
                   (void)s.integer("outputs", 3);
                   return MadeTask{Task(std::make_shared<Largest>()), 3};
                 }});
  Spec resolved;
  EXPECT_EQ(make_task(task_spec("largest"), {}, kNumber, &resolved).outputs, 3);
  EXPECT_TRUE(resolved.settings.contains("outputs"));
  EXPECT_NE(message_of<UsageError>([] {
              register_task({"binary", {}});
            }).find("there is a kind 'binary' already"),
            std::string::npos);
}

}  // namespace
}  // namespace elinvar
