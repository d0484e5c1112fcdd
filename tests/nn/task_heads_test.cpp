// Tasks of several heads: their losses and metrics are those of each head alone.
#include <gtest/gtest.h>

#include "nn/micro_batch.h"
#include "nn/task.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

using test::message_of;

const TargetInfo kFour{.sample = {4}, .dtype = DType::f32};

// A class of three, with a double weight, two numbers, and a label.
Spec heads_spec() {
  Spec spec{.kind = "heads"};
  spec.lists["head"] = {
      {.kind = "classification", .settings = {{"classes", {int64_t{3}}}, {"weight", {2.0}}}},
      {.kind = "regression", .settings = {{"targets", {int64_t{2}}}, {"name", {std::string("size")}}}},
      {.kind = "binary", .settings = {{"weight", {0.5}}}}};
  return spec;
}

Tensor outputs() {
  Tensor x = Tensor::empty({5, 6});
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = static_cast<float>(i * 7 % 11) / 4 - 1.1f;
  return x;
}

Tensor columns(const Tensor& x, int64_t begin, int64_t end) { return x.slice(1, begin, end).to_contiguous(); }

Tensor all_targets() {
  return Tensor::from(std::vector<float>{0, 1.5, 2, 1, 2, -1, 0, 0, 1, 0.5, 3, 1, 1, 0, 0, 0, 2, 1, 1, 1}, {5, 4});
}

TEST(Heads, LossesAreWeightedAndAdded) {
  const MadeTask made = make_task(heads_spec(), {}, kFour);
  EXPECT_EQ(made.outputs, 3 + 2 + 1);
  const Tensor x = outputs(), y = all_targets();
  const auto alone = [](const std::string& kind, int64_t numbers) {
    return make_task({.kind = kind}, {}, {.sample = numbers > 1 ? Shape{numbers} : Shape{}, .dtype = DType::f32}).task;
  };
  const BatchScore classes = evaluate(columns(x, 0, 3), Tensor::from(std::vector<int64_t>{0, 2, 1, 1, 2}, {5})),
                   sizes = evaluate(columns(x, 3, 5), columns(y, 1, 3), alone("regression", 2)),
                   labels = evaluate(columns(x, 5, 6), columns(y, 3, 4).reshape({5}), alone("binary", 1));
  BatchScore score = evaluate(columns(x.slice(0, 0, 2), 0, 6), columns(y.slice(0, 0, 2), 0, 4), made.task);
  score.add(evaluate(columns(x.slice(0, 2, 5), 0, 6), columns(y.slice(0, 2, 5), 0, 4), made.task));
  EXPECT_EQ(score.count, 5);
  EXPECT_NEAR(score.loss_sum, 2 * classes.loss_sum + sizes.loss_sum + 0.5 * labels.loss_sum,
              1e-5);  // float32 sums of two batches

  std::map<std::string, double> expected;
  const auto add = [&](const std::string& name, const BatchScore& own, const Task& task) {
    expected[name + "_loss"] = own.loss_sum / static_cast<double>(own.count);
    for (const auto& [metric, value] : task->metrics(own)) expected[name + "_" + metric] = value;
  };
  add("classification", classes, Task());
  add("size", sizes, alone("regression", 2));
  add("binary", labels, alone("binary", 1));
  const auto found = made.task->metrics(score);
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [name, value] : expected) EXPECT_NEAR(found.at(name), value, 1e-6) << name;  // as above
}

TEST(Heads, GradientsReachTheOutputsOfTheirHead) {
  Spec spec = heads_spec();
  spec.lists["head"][0].settings["weight"] = {0.0};
  const Task task = make_task(spec, {}, kFour).task;
  const Var x(outputs(), /*requires_grad=*/true);
  backward(task->loss({.parts = {x}, .classes = 6}, all_targets()).loss);
  for (int64_t i = 0; i < 5; ++i)
    for (int64_t k = 0; k < 6; ++k) EXPECT_EQ(x.grad().data<float>()[6 * i + k] == 0, k < 3) << i << ", " << k;
}

TEST(Heads, WhatDoesNotFitIsNamed) {
  const auto refusal = [](const std::function<void(Spec&)>& change, const TargetInfo& targets = kFour) {
    Spec spec = heads_spec();
    change(spec);
    return message_of<UsageError>([&] { make_task(spec, {}, targets); });
  };
  EXPECT_NE(
      refusal([](Spec&) {}, {.sample = {3}, .dtype = DType::f32}).find("heads for 4 targets, but the data have 3"),
      std::string::npos);
  EXPECT_NE(refusal([](Spec&) {}, {.dtype = DType::i64, .classes = 3}).find("'heads' divides numbers"),
            std::string::npos);
  EXPECT_NE(refusal([](Spec& s) { s.lists.clear(); }).find("needs a list of [[task.head]]"), std::string::npos);
  EXPECT_NE(refusal([](Spec& s) { s.lists["head"][2].settings["name"] = {std::string("size")}; }).find("is called"),
            std::string::npos);
  EXPECT_NE(refusal([](Spec& s) { s.lists["head"][1].kind = "regresion"; }).find("did you mean 'regression'"),
            std::string::npos);
  EXPECT_NE(refusal([](Spec& s) { s.lists["head"][0].settings.erase("classes"); }).find("classes"), std::string::npos);
  EXPECT_NE(refusal([](Spec& s) { s.lists["head"][0].settings["delta"] = {1.0}; }).find("delta"), std::string::npos);
  Tensor y = all_targets();
  y.data<float>()[4] = 1.5;
  EXPECT_EQ(message_of<UsageError>([&] { evaluate(outputs(), y, make_task(heads_spec(), {}, kFour).task); }),
            "[heads] target 1.5 of sample 1 for head 'classification' is no class from 0 to 2");
}

}  // namespace
}  // namespace elinvar
