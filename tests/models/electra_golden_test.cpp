// Compares a small ELECTRA with PyTorch in float64 (golden/make_electra.py).
#include <gtest/gtest.h>

#include "tests/models/golden_network.h"

namespace elinvar {
namespace {

const InputInfo kMasked{
    .sample = {12}, .classes = 40, .dtype = DType::i32, .further = {{.sample = {12}, .dtype = DType::i32}}};

Spec electra_spec(double dropout = 0) {
  return spec("electra", {{"layers", int64_t{2}},
                          {"heads", int64_t{3}},
                          {"channels", int64_t{24}},
                          {"hidden", int64_t{40}},
                          {"embedding", int64_t{12}},
                          {"generator_layers", int64_t{1}},
                          {"generator_heads", int64_t{2}},
                          {"generator_channels", int64_t{8}},
                          {"generator_hidden", int64_t{16}},
                          {"dropout", dropout}});
}

struct MaskedBatch {
  Inputs inputs = Tensor();
  Tensor target = integers<int64_t>("target", {3, 12}, 40);

  MaskedBatch() {
    const Tensor chosen = integers<int64_t>("chosen", {3, 12}, 3);
    for (int64_t i = 0; i < target.numel(); ++i)
      if (chosen.data<int64_t>()[i] != 0) target.data<int64_t>()[i] = -100;
    inputs = Inputs(integers<int32_t>("input", {3, 12}, 40), {target.to(DType::i32)});
  }
};

Task replaced_tokens(double weight) {
  const Spec spec{.kind = "replaced_tokens", .settings = {{"weight", {weight}}}};
  return make_task(spec, {}, {.sample = {12}, .classes = 40}).task;
}

TEST(ElectraGolden, OfMaskedTokens) {
  const MaskedBatch batch;
  const auto noise = [](const std::string& name) { return name.ends_with("key.bias"); };
  const auto network = build(electra_spec(), kMasked, 1);
  compare_with_golden("electra", *network, *network, batch.inputs, batch.target, noise, replaced_tokens(2.0));
}

// Each generator's token is as likely as its softmax says.
TEST(Electra, DrawsTokensByTheirProbability) {
  const auto network = build(electra_spec(), kMasked, 1);
  for (Parameter& p : network->parameters.list)
    if (p.name == "generator.generator_lm_head.bias") p.var.mutable_value().data<float>()[0] = 3;  // a third of them
  const Tensor targets = Tensor::zeros({1, 12}, DType::i32);  // every token is to be predicted
  constexpr int kDraws = 400;
  double expected = 0, found = 0;
  for (uint32_t draw = 0; draw < kDraws; ++draw) {
    Context context{.rng = {.seed = 7, .step = draw}, .inputs = {targets}};
    const NoGrad constant;
    const Tensor out = network->forward(Tensor::zeros({1, 12}, DType::i32), context).value();
    for (int64_t t = 0; t < 12; ++t) {
      const float* x = out.data<float>() + t * 42;
      double sum = 0;
      for (int64_t v = 0; v < 40; ++v) sum += std::exp(static_cast<double>(x[v]));
      expected += 1 - std::exp(static_cast<double>(x[0])) / sum;  // that the token is replaced
      found += x[41];
    }
  }
  EXPECT_GT(expected, 2500);
  EXPECT_LT(expected, 3800);
  EXPECT_NEAR(found / expected, 1.0, 0.04);  // four deviations
}

TEST(Electra, MetricsAreOfBothNetworks) {
  const Task task = replaced_tokens(1.0);
  Tensor out = Tensor::zeros({1, 12, 42});
  Tensor targets = Tensor::full({1, 12}, -100, DType::i64);
  for (int64_t t = 0; t < 12; ++t) {
    out.data<float>()[t * 42 + 40] = t < 4 ? 1.0f : -1.0f;      // found
    out.data<float>()[t * 42 + 41] = t % 2 == 0 ? 1.0f : 0.0f;  // replaced
  }
  targets.data<int64_t>()[3] = 0;
  targets.data<int64_t>()[5] = 1;
  const BatchScore score = evaluate(out, targets, task);
  EXPECT_EQ(score.count, 2);
  const double right = std::log1p(std::exp(-1.0)), wrong = std::log1p(std::exp(1.0));
  EXPECT_NEAR(score.loss_sum, 2 * std::log(40.0) + 6 * right + 6 * wrong, 1e-4);  // of float32
  const auto metrics = task->metrics(score);
  EXPECT_DOUBLE_EQ(metrics.at("accuracy"), 0.5);
  EXPECT_DOUBLE_EQ(metrics.at("replaced_accuracy"), 0.5);
  EXPECT_DOUBLE_EQ(metrics.at("replaced_f1"), 2 * 2.0 / (2 * 2 + 2 + 4));
}

TEST(Electra, RecomputedGradientsHaveTheSameBits) {
  const MaskedBatch batch;
  const auto network = build(electra_spec(0.1), kMasked, 1);
  const auto gradients = [&](bool recompute) {
    StateDict all;
    const MicroBatchResult result = micro_batch_gradient(*network, batch.inputs, Targets(batch.target),
                                                         replaced_tokens(7.5), {.seed = 1}, recompute);
    for (size_t i = 0; i < result.gradients.size(); ++i) all.emplace(std::to_string(i), result.gradients[i]);
    return digest(all);
  };
  EXPECT_EQ(gradients(true), gradients(false));
}

TEST(Electra, NeedsTheTargets) {
  InputInfo alone = kMasked;
  alone.further.clear();
  try {
    build(electra_spec(), alone, 1);
    ADD_FAILURE() << "built";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("data.targets_as_input = true"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace elinvar
