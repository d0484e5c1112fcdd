// Compares networks and tasks for rows of numbers and categories with PyTorch in float64 (golden/make_rows.py).
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "models/build.h"
#include "nn/touched_rows.h"
#include "tensor/base/check.h"
#include "tensor/ops/pointwise.h"
#include "tensor/safetensors.h"
#include "tests/models/golden_network.h"
#include "tests/models/hashed_inputs.h"
#include "tests/models/row_inputs.h"
#include "tests/places.h"
#include "tests/support/bits.h"
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

TEST(RowsGolden, DlrmWithSumsOfBags) {
  compare_rows("dlrm_bags", spec_of("dlrm", {{"channels", int64_t{3}}, {"bottom", List{5}}, {"top", List{6, 4}}}),
               numbers_and_bags(), spec_of("binary", {}), soft_targets());
}

TEST(RowsGolden, DeepFmWithMeansOfBags) {
  compare_rows("deepfm_bags",
               spec_of("deepfm", {{"channels", int64_t{3}}, {"deep", List{6, 4}}, {"bags", std::string("mean")}}),
               numbers_and_bags(), spec_of("binary", {}), soft_targets());
}

TEST(RowsGolden, NeuMfWithBinaryCrossEntropyOfProbabilities) {
  compare_rows("neumf_binary", spec_of("neumf", {{"factors", int64_t{3}}, {"layers", List{7, 4}}}),
               pairs_of_categories(), spec_of("binary", {{"positive_weight", 3.0}}), soft_targets());
}

TEST(RowsGolden, NeuMfWithAbsoluteErrors) {
  compare_rows("neumf_mae", spec_of("neumf", {{"factors", int64_t{3}}, {"layers", List{7, 4}}}), pairs_of_categories(),
               spec_of("regression", {{"loss", std::string("mae")}}), soft_targets());
}

// Samples of all, from 2 (step % 3) on.
Tensor samples_at(const Tensor& all, int64_t step) {
  return all.slice(0, 2 * (step % 3), 2 * (step % 3) + 2).to_contiguous();
}
Inputs samples_at(const Inputs& all, int64_t step) {
  Inputs some(samples_at(all.first, step));
  for (const Tensor& further : all.further) some.further.push_back(samples_at(further, step));
  return some;
}

// Trains DLRM for ten steps with samples_at() each; calls each(loss) for each. Returns the network. With
// `table_rows`, model.rows, it begins with its own initial values. With `bags` the rows have bags.
std::unique_ptr<Network> trained_dlrm(const OptimizerConfig& config, const std::function<void(double)>& each = {},
                                      std::optional<int64_t> table_rows = {},
                                      const std::optional<std::string>& bags = {}) {
  const RowCase rows = bags ? numbers_and_bags() : numbers_and_categories();
  auto network = build(spec_of("dlrm", {{"channels", int64_t{3}},
                                        {"bottom", List{5}},
                                        {"top", List{6, 4}},
                                        {"rows", table_rows.value_or(0)},
                                        {"bags", bags.value_or("sum")}}),
                       rows.info, 1);
  if (!table_rows) fill_initial(network->parameters);
  make_sparse(network->parameters, config.sparse, 2);
  const Task task = make_task(spec_of("binary", {}), {}, {.sample = {}, .dtype = DType::f32}).task;
  const auto optimizer = make_optimizer(config, network->parameters);
  for (int64_t step = 0; step < 10; ++step) {
    const Inputs inputs = samples_at(rows.inputs, step);
    touch(network->parameters, inputs);
    read_touched(network->parameters);
    MicroBatchResult result =
        micro_batch_gradient(*network, inputs, samples_at(soft_targets(), step), task, Rng{.seed = 1});
    for (Tensor& g : result.gradients) g = mul(g, 0.5);
    if (each) each(result.loss_sum / 2);
    optimizer->step(network->parameters, result.gradients, config.lr, step);
  }
  return network;
}

const Tensor& table_of(const Network& network) {
  for (const Parameter& p : network.parameters.list)
    if (p.name == "embedding.weight") return p.var.value();
  throw UsageError("the network has no table");
}

TEST(RowsGolden, SparseTables) {
  constexpr double kTolerance = 2e-5;  // as above
  const std::vector<std::string> table = {"embedding.*"};
  for (const auto& [name, config] :
       {std::pair{"sparse_sgd",
                  OptimizerConfig{.kind = "sgd", .lr = 0.05, .momentum = 0.0, .sparse = table, .sparse_lr = 0.1}},
        std::pair{"sparse_adam",  // whose eps is added before the correction of moments
                  OptimizerConfig{.lr = 0.05, .eps = 1e-12, .sparse = table, .sparse_kind = "adam", .sparse_lr = 0.02}},
        std::pair{
            "rowwise_adagrad",
            OptimizerConfig{.lr = 0.05, .weight_decay = 1e-3, .sparse = table, .sparse_kind = "rowwise_adagrad"}}}) {
    const StateDict golden =
        read_safetensors(std::string(ELINVAR_SOURCE_DIR "/tests/golden/rows_") + name + ".safetensors").tensors;
    int64_t step = 0;
    const auto network = trained_dlrm(config, [&, &name = name](double loss) {
      const double expected = golden.at("losses").data<float>()[step];
      EXPECT_NEAR(loss, expected, kTolerance * expected) << name << " step " << step;
      ++step;
    });
    EXPECT_LE(golden_difference(table_of(*network), golden.at("table")), kTolerance) << name;
    EXPECT_LE(golden_difference(outputs_of(*network, numbers_and_categories().inputs), golden.at("eval_outputs")),
              5 * kTolerance)
        << name;
  }
}

// Of rows without bags, and of those with them.
const std::vector<std::optional<std::string>> kBags = {std::nullopt, "sum", "mean"};

TEST(RowsGolden, SparseTablesOfBags) {
  constexpr double kTolerance = 2e-5;  // as above
  const OptimizerConfig config{.lr = 0.05, .sparse = {"embedding.*"}, .sparse_kind = "rowwise_adagrad"};
  for (const auto& [name, mode] : {std::pair{"sparse_bags", "sum"}, std::pair{"sparse_mean_bags", "mean"}}) {
    const StateDict golden =
        read_safetensors(std::string(ELINVAR_SOURCE_DIR "/tests/golden/rows_") + name + ".safetensors").tensors;
    int64_t step = 0;
    const auto network = trained_dlrm(
        config,
        [&, &name = name](double loss) {
          const double expected = golden.at("losses").data<float>()[step];
          EXPECT_NEAR(loss, expected, kTolerance * expected) << name << " step " << step;
          ++step;
        },
        {}, mode);
    EXPECT_LE(golden_difference(table_of(*network), golden.at("table")), kTolerance) << name;
    EXPECT_LE(golden_difference(outputs_of(*network, numbers_and_bags().inputs), golden.at("eval_outputs")),
              5 * kTolerance)
        << name;
  }
}

TEST(Rows, SgdOfSparseTablesHasTheBitsOfDenseOnes) {
  const OptimizerConfig dense{.kind = "sgd", .lr = 0.05, .momentum = 0.0};
  OptimizerConfig sparse = dense;
  sparse.sparse = {"embedding.weight"};
  for (const auto& bags : kBags) {
    const auto one = trained_dlrm(dense, {}, {}, bags), other = trained_dlrm(sparse, {}, {}, bags);
    for (size_t i = 0; i < one->parameters.list.size(); ++i)
      EXPECT_TRUE(test::same_bits(one->parameters.list[i].var.value(), other->parameters.list[i].var.value()))
          << one->parameters.list[i].name << " " << bags.value_or("");
  }
}

// A row has the values that it would have in a whole table, whenever it is made.
void compare_growing(const std::optional<std::string>& bags) {
  const OptimizerConfig config{.kind = "adam", .lr = 0.05, .sparse = {"embedding.weight"}};
  std::vector<double> losses;
  const auto keep = [&](double loss) { losses.push_back(loss); };
  const auto whole = trained_dlrm(config, keep, 0, bags), growing = trained_dlrm(config, keep, 20, bags);
  ASSERT_EQ(losses.size(), 20u);
  for (size_t step = 0; step < 10; ++step) EXPECT_EQ(losses[step], losses[10 + step]) << step;
  RowCase rows = bags ? numbers_and_bags() : numbers_and_categories();
  if (bags) rows.inputs.further[0].data<int32_t>()[1] = 1;  // a category that no step has
  EXPECT_TRUE(test::same_bits(outputs_of(*whole, rows.inputs), outputs_of(*growing, rows.inputs)));
  for (size_t i = 0; i < whole->parameters.list.size(); ++i) {
    const Parameter &one = whole->parameters.list[i], &other = growing->parameters.list[i];
    EXPECT_TRUE(one.touched || test::same_bits(one.var.value(), other.var.value())) << one.name;
  }
  const Tensor ids = growing->parameters.buffers[0]->value;
  EXPECT_GT(ids.data<int64_t>()[0], -1);
  for (int64_t row = 0; row < ids.numel() && ids.data<int64_t>()[row] >= 0; ++row) {
    const int64_t id = ids.data<int64_t>()[row];
    EXPECT_TRUE(test::same_bits(table_of(*growing).slice(0, row, row + 1), table_of(*whole).slice(0, id, id + 1)));
  }
}

TEST(Rows, GrowingTablesHaveTheBitsOfWholeOnes) {
  for (const auto& bags : kBags) compare_growing(bags);
}

// The order of categories in a bag decides roundings; where places have none does not matter.
TEST(Rows, BagsDoNotDependOnTheirWidth) {
  const RowCase rows = numbers_and_bags();
  RowCase wide = rows;
  wide.info.further[0].sample = {9};
  wide.info.further[0].most_ids = {1, 4, 4};
  wide.inputs.further[0] = Tensor::full({kRows, 9}, -1, DType::i32);
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t k = 0; k < 7; ++k)
      wide.inputs.further[0].data<int32_t>()[9 * i + (k < 5 ? k : k + 1)] =
          rows.inputs.further[0].data<int32_t>()[7 * i + k];
  for (const char* bags : {"sum", "mean"}) {
    const Spec model = spec_of("deepfm", {{"bags", std::string(bags)}});
    EXPECT_TRUE(test::same_bits(outputs_of(*build(model, rows.info, 1), rows.inputs),
                                outputs_of(*build(model, wide.info, 1), wide.inputs)))
        << bags;
  }
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
  RowCase bags = numbers_and_bags();
  EXPECT_NE(refusal("neumf", {.sample = {3}, .classes = 1, .dtype = DType::i32, .symbols = {7, 5}, .most_ids = {1, 2}})
                .find("takes one category of each column, but data.most_ids allows more"),
            std::string::npos);
  const auto of_bags = build(spec_of("dlrm", {}), bags.info, 1);
  bags.inputs.further[0].data<int32_t>()[7] = -1;  // the column of one
  EXPECT_EQ(test::message_of<UsageError>([&] { outputs_of(*of_bags, bags.inputs); }),
            "[embedding] category -1 of sample 1, column 0, is not in [0, 7)");
  bags = numbers_and_bags();
  bags.inputs.further[0].data<int32_t>()[12] = 11;
  EXPECT_EQ(test::message_of<UsageError>([&] { outputs_of(*of_bags, bags.inputs); }),
            "[embedding] category 11 of sample 1, column 2, is not in [0, 11)");
}

}  // namespace
}  // namespace elinvar
