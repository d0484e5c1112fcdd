// Compares optimisers with the textbook formulas in double, and their bits over threads and instruction sets.
#include "nn/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "nn/clip.h"
#include "nn/weight_average.h"
#include "tensor/base/check.h"
#include "tensor/isa.h"
#include "tensor/ops/global_norm.h"
#include "tensor/philox.h"
#include "tests/support/bits.h"
#include "tests/support/other_devices.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

Tensor random(const Shape& shape, uint64_t key, DType dtype) {
  Tensor x = Tensor::empty(shape, DType::f64);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<double>()[i] = uniform01(philox(key, static_cast<uint32_t>(i), 0, 0, 0).v[0]) * 2.0 - 1.0;
  return x.to(dtype);
}

// A matrix with decay and a bias without; longer than a segment of rule 11, and not a multiple of any vector length.
Parameters some_parameters(DType dtype) {
  Parameters p;
  p.list.push_back({"weight", Var(random({167, 197}, 1, dtype), true), true});
  p.list.push_back({"bias", Var(random({37}, 2, dtype), true), false});
  return p;
}

std::vector<Tensor> some_gradients(int64_t step, DType dtype) {
  const auto key = static_cast<uint64_t>(10 + 2 * step);
  return {random({167, 197}, key, dtype), random({37}, key + 1, dtype)};
}

// The textbook step for one parameter: p, g, two state vectors, and its settings.
struct Reference {
  std::vector<double> p, g, m, v;
  bool decay;
  double lr;
  int t;  // counted from 1
};

double norm(const std::vector<double>& x) {
  double sum = 0.0;
  for (double e : x) sum += e * e;
  return std::sqrt(sum);
}

void sgd_reference(Reference& r, const OptimizerConfig& c) {
  const double decay = r.decay ? c.weight_decay : 0.0;
  double ratio = 1.0;
  if (c.kind == "lars" && r.decay) ratio = c.trust * norm(r.p) / (norm(r.g) + decay * norm(r.p) + c.eps);
  for (size_t i = 0; i < r.p.size(); ++i) {
    const double d = ratio * (r.g[i] + decay * r.p[i]);
    r.m[i] = c.momentum * r.m[i] + d;
    r.p[i] -= r.lr * (c.nesterov ? d + c.momentum * r.m[i] : r.m[i]);
  }
}

void adam_reference(Reference& r, const OptimizerConfig& c) {
  const double decay = r.decay ? c.weight_decay : 0.0;
  std::vector<double> u(r.p.size());
  for (size_t i = 0; i < r.p.size(); ++i) {
    const double d = r.g[i] + (c.kind == "adam" ? decay * r.p[i] : 0.0);
    r.m[i] = c.beta1 * r.m[i] + (1 - c.beta1) * d;
    r.v[i] = c.beta2 * r.v[i] + (1 - c.beta2) * d * d;
    const double m = r.m[i] / (1 - std::pow(c.beta1, r.t)), v = r.v[i] / (1 - std::pow(c.beta2, r.t));
    u[i] = m / (std::sqrt(v) + c.eps) + (c.kind == "adam" ? 0.0 : decay * r.p[i]);
  }
  const double ratio = c.kind == "lamb" && r.decay ? norm(r.p) / norm(u) : 1.0;
  for (size_t i = 0; i < r.p.size(); ++i) r.p[i] -= r.lr * ratio * u[i];
}

std::vector<double> values(const Tensor& x) {
  const Tensor y = x.to(DType::f64);
  return {y.data<double>(), y.data<double>() + y.numel()};
}

constexpr int kSteps = 6;
double rate(int step) { return 0.05 / (1 + step); }

void expect_textbook(const OptimizerConfig& config,
                     const std::function<void(Reference&, const OptimizerConfig&)>& reference) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    Parameters parameters = some_parameters(dtype);
    const auto optimizer = make_optimizer(config, parameters);
    std::vector<Reference> expected;
    for (const Parameter& p : parameters.list) {
      const std::vector<double> zeros(static_cast<size_t>(p.var.value().numel()));
      expected.push_back({values(p.var.value()), {}, zeros, zeros, p.decay, 0.0, 0});
    }
    for (int step = 0; step < kSteps; ++step) {
      const auto gradients = some_gradients(step, dtype);
      optimizer->step(parameters, gradients, rate(step), step, 0.25);
      for (size_t k = 0; k < expected.size(); ++k) {
        Reference& r = expected[k];
        r.g = values(gradients[k]);
        for (double& g : r.g) g *= 0.25;
        r.lr = rate(step);
        r.t = step + 1;
        reference(r, config);
        const auto got = values(parameters.list[k].var.value());
        for (size_t i = 0; i < got.size(); ++i)
          // float32 parameters of magnitude 1 are rounded in each of a few steps, by at most 2^-24 each time.
          ASSERT_NEAR(got[i], r.p[i], 3e-6)
              << config.kind << ", " << parameters.list[k].name << " element " << i << " step " << step;
      }
    }
  }
}

TEST(Optimizer, SgdIsTheTextbooks) {
  expect_textbook({.kind = "sgd", .momentum = 0.0, .weight_decay = 0.1}, sgd_reference);
  expect_textbook({.kind = "sgd", .momentum = 0.9, .weight_decay = 0.1}, sgd_reference);
  expect_textbook({.kind = "sgd", .momentum = 0.9, .nesterov = true, .weight_decay = 0.1}, sgd_reference);
}
TEST(Optimizer, LarsIsThePapers) {
  expect_textbook({.kind = "lars", .momentum = 0.9, .weight_decay = 0.1, .trust = 0.02}, sgd_reference);
}
TEST(Optimizer, AdamAndAdamWAreTheTextbooks) {
  expect_textbook({.kind = "adam", .weight_decay = 0.1}, adam_reference);
  expect_textbook({.kind = "adamw", .beta2 = 0.95, .weight_decay = 0.1}, adam_reference);
}
TEST(Optimizer, LambIsThePapers) { expect_textbook({.kind = "lamb", .weight_decay = 0.1}, adam_reference); }

bool all_finite(const Tensor& x) {
  const std::vector<double> all = values(x);
  return std::all_of(all.begin(), all.end(), [](double e) { return std::isfinite(e); });
}

// Gradients of zero, as with a dead rectifier: the moments decay to the smallest value that rounding allows, and the
// norm of LAMB's update becomes so small that |p| / |u| overflows float32.
TEST(Optimizer, ParametersStayFiniteThroughThousandsOfZeroGradients) {
  for (const std::string& kind : optimizer_kinds()) {
    Parameters parameters;
    parameters.list.push_back({"weight", Var(random({8, 9}, 1, DType::f32), true), true});
    const auto optimizer = make_optimizer({.kind = kind}, parameters);
    for (int step = 0; step < 2000; ++step) {
      std::vector<Tensor> gradient = {step == 0 ? random({8, 9}, 2, DType::f32) : Tensor::zeros({8, 9})};
      gradient[0].data<float>()[5] = 0.0f;  // infinity times this was NaN in an earlier version
      optimizer->step(parameters, gradient, 1e-3, step);
      ASSERT_TRUE(all_finite(parameters.list[0].var.value())) << kind << " step " << step;
    }
  }
}

TEST(Optimizer, TrustRatiosOfSubnormalNormsAreFloats) {
  const auto moved = [](const OptimizerConfig& config, float gradient) {
    Parameters parameters;
    const Tensor before = Tensor::full({64}, 0.5);
    parameters.list.push_back({"weight", Var(Tensor::full({64}, 0.5), true), true});
    std::vector<Tensor> gradients = {Tensor::full({64}, 0.0)};
    for (int i = 1; i < 64; ++i) gradients[0].data<float>()[i] = gradient;
    make_optimizer(config, parameters)->step(parameters, gradients, 0.01, 0);
    EXPECT_TRUE(all_finite(parameters.list[0].var.value())) << config.kind << " " << gradient;
    const std::vector<double> after = values(parameters.list[0].var.value());
    double square = 0;
    for (const double p : after) square += (p - 0.5) * (p - 0.5);
    return std::sqrt(square) / (0.5 * 8);
  };
  for (const std::string& kind : optimizer_kinds())
    for (const float gradient : {1e-30f, 1e-40f, 1e-44f, 1.4e-45f})
      EXPECT_LT(moved({.kind = kind}, gradient), 0.011) << kind << " " << gradient;
  // A small norm has its ratio as long as that is a float32, and 1 beyond. Subnormal numbers have few bits: within 1 %.
  EXPECT_NEAR(moved({.kind = "lamb"}, 1e-44f), 0.01, 1e-4);
  EXPECT_EQ(moved({.kind = "lamb", .eps = 1.0}, 1e-44f), 0.0);
  EXPECT_NEAR(moved({.kind = "lars", .momentum = 0.0, .eps = 0.0, .trust = 0.5}, 1e-37f), 0.005, 1e-4);
  EXPECT_EQ(moved({.kind = "lars", .momentum = 0.0, .eps = 0.0, .trust = 0.5}, 1e-44f), 0.0);
}

// Returns the parameters after all steps, on the CPU.
std::vector<Tensor> trained(const OptimizerConfig& config, Device device = {}) {
  Parameters parameters = some_parameters(DType::f32);
  for (Parameter& p : parameters.list) p.var = Var(p.var.value().to(device), true);
  const auto optimizer = make_optimizer(config, parameters);
  for (int step = 0; step < kSteps; ++step) {
    auto gradients = some_gradients(step, DType::f32);
    for (Tensor& g : gradients) g = g.to(device);
    optimizer->step(parameters, gradients, rate(step), step, clip_by_global_norm(gradients, 1.0).scale);
  }
  return {parameters.list[0].var.value().to(Device{}), parameters.list[1].var.value().to(Device{})};
}

TEST(Optimizer, BitsDoNotDependOnThreadsOrInstructionSet) {
  const Isa before = current_isa();
  for (const std::string& kind : optimizer_kinds()) {
    const OptimizerConfig config{.kind = kind, .weight_decay = 0.1};
    const auto expected = trained(config);
    for (const Isa isa : available_isas()) {
      set_isa(isa);
      for (int threads : {1, 2, 3}) {
        CpuStream stream(threads);
        const StreamScope scope(stream);
        const auto got = trained(config);
        for (size_t k = 0; k < got.size(); ++k)
          for (int64_t i = 0; i < got[k].numel(); ++i)
            ASSERT_EQ(got[k].data<float>()[i], expected[k].data<float>()[i])
                << kind << ", " << name_of(isa) << ", " << threads << " threads, element " << i;
      }
    }
    set_isa(before);
  }
}

TEST(Optimizer, KernelsForGpusHaveTheSameBits) {
  const auto expect_same = [](const OptimizerConfig& config) {
    const auto expected = trained(config);
    for (const Device device : test::other_devices()) {
      const auto got = trained(config, device);
      for (size_t k = 0; k < got.size(); ++k)
        EXPECT_TRUE(test::same_bits(got[k], expected[k]))
            << to_string(device) << ", " << config.kind << ", parameter " << k;
    }
  };
  for (const std::string& kind : optimizer_kinds()) expect_same({.kind = kind, .weight_decay = 0.1});
  expect_same({.kind = "sgd", .momentum = 0.0});
  expect_same({.kind = "sgd", .momentum = 0.9, .nesterov = true, .weight_decay = 0.1});
}

TEST(Optimizer, OneStepForMoreParametersThanALaunchTakes) {
  const auto stepped = [](const char* kind, Device device) {
    Parameters parameters;
    std::vector<Tensor> gradients;
    for (uint64_t i = 0; i < 70; ++i) {
      const Shape shape{static_cast<int64_t>(i * i)};
      parameters.list.push_back({std::to_string(i), Var(random(shape, i, DType::f32).to(device), true), i % 2 == 0});
      gradients.push_back(random(shape, 100 + i, DType::f32).to(device));
    }
    make_optimizer({.kind = kind, .weight_decay = 0.1}, parameters)->step(parameters, gradients, 0.1, 0);
    std::vector<Tensor> found;
    for (const Parameter& p : parameters.list) found.push_back(p.var.value().to(Device{}));
    return found;
  };
  for (const char* kind : {"sgd", "lars", "adam"}) {
    const auto expected = stepped(kind, {});
    for (const Device device : test::other_devices()) {
      const auto got = stepped(kind, device);
      for (size_t k = 0; k < got.size(); ++k)
        EXPECT_TRUE(test::same_bits(got[k], expected[k])) << to_string(device) << ", " << kind << ", parameter " << k;
    }
  }
}

TEST(Optimizer, StateContinuesWhereItWasSaved) {
  for (const std::string& kind : optimizer_kinds()) {
    const OptimizerConfig config{.kind = kind, .weight_decay = 0.1};
    const auto expected = trained(config);
    Parameters parameters = some_parameters(DType::f32);
    auto optimizer = make_optimizer(config, parameters);
    for (int step = 0; step < kSteps; ++step) {
      const auto gradients = some_gradients(step, DType::f32);
      optimizer->step(parameters, gradients, rate(step), step, clip_by_global_norm(gradients, 1.0).scale);
      auto next = make_optimizer(config, parameters);
      next->load(optimizer->state());
      optimizer = std::move(next);
    }
    for (size_t k = 0; k < expected.size(); ++k)
      for (int64_t i = 0; i < expected[k].numel(); ++i)
        ASSERT_EQ(parameters.list[k].var.value().data<float>()[i], expected[k].data<float>()[i]) << kind;
  }
}

TEST(Optimizer, RefusesWhatDoesNotFit) {
  Parameters parameters = some_parameters(DType::f32);
  EXPECT_THROW(make_optimizer({.kind = "sdg"}, parameters), UsageError);
  EXPECT_THROW(make_optimizer({.momentum = 1.0}, parameters), UsageError);
  EXPECT_THROW(make_optimizer({.momentum = 0.0, .nesterov = true}, parameters), UsageError);
  const auto optimizer = make_optimizer({.kind = "adamw"}, parameters);
  auto gradients = some_gradients(0, DType::f32);
  gradients.pop_back();
  EXPECT_THROW(optimizer->step(parameters, gradients, 0.1, 0), UsageError);
  EXPECT_THROW(optimizer->load(make_optimizer({.kind = "sgd"}, parameters)->state()), UsageError);
  StateDict state = optimizer->state();
  state.erase("bias.m");
  EXPECT_THROW(optimizer->load(state), UsageError);
  state["bias.m"] = Tensor::zeros({36});
  EXPECT_THROW(optimizer->load(state), UsageError);
}

TEST(WeightAverage, FollowsWeightsAndBuffers) {
  const auto network_of = [](float weight, float buffer) {
    Parameters all;
    all.list.push_back({"w", Var(Tensor::full({3}, weight), true)});
    all.buffers.push_back(std::make_shared<Buffer>(Buffer{"mean", Tensor::full({2}, buffer)}));
    return all;
  };
  Parameters average = network_of(1, 2);
  float w = 1, mean = 2;
  for (int step = 0; step < 40; ++step) {
    const float weight = 0.1f * static_cast<float>(step), buffer = -weight;
    follow(average, network_of(weight, buffer), 0.7, step);
    const double decay = std::min(0.7, (1.0 + step) / (10.0 + step));
    const auto rate = static_cast<float>(1.0 - decay);
    w = std::fma(-rate, w - weight, w);
    mean = std::fma(-rate, mean - buffer, mean);
    EXPECT_EQ(average.list[0].var.value().data<float>()[2], w) << step;
    EXPECT_EQ(average.buffers[0]->value.data<float>()[1], mean) << step;
  }
  EXPECT_THROW(follow(average, network_of(1, 1), 1.0, 0), UsageError);
  EXPECT_THROW(follow(average, Parameters(), 0.5, 0), UsageError);
}

TEST(GlobalNorm, FollowsTheRule) {
  const Tensor x = random({9001}, 7, DType::f32);
  double total = 0.0;
  for (int64_t begin = 0; begin < x.numel(); begin += 4096) {
    double lanes[64] = {};
    for (int64_t i = begin; i < std::min<int64_t>(x.numel(), begin + 4096); ++i) {
      const double g = x.data<float>()[i];
      lanes[(i - begin) % 64] = std::fma(g, g, lanes[(i - begin) % 64]);
    }
    for (int s = 32; s > 0; s /= 2)
      for (int l = 0; l < s; ++l) lanes[l] += lanes[l + s];
    total += lanes[0];
  }
  const Tensor y = Tensor::full({3}, 0.1);
  const double g = static_cast<double>(0.1f);
  const Tensor tensors[] = {x, y};
  EXPECT_EQ(square_sum(tensors), total + ((g * g + g * g) + g * g));
  EXPECT_EQ(global_norm(tensors), std::sqrt(square_sum(tensors)));
  EXPECT_EQ(global_norm(std::span<const Tensor>()), 0.0);
}

TEST(Clip, ScalesOnlyWhatIsLonger) {
  const Tensor tensors[] = {Tensor::full({16}, 1.0), Tensor::full({3, 3}, 1.0)};
  EXPECT_EQ(clip_by_global_norm(tensors, 0.0).scale, 1.0);
  EXPECT_EQ(clip_by_global_norm(tensors, 5.5).scale, 1.0);
  EXPECT_DOUBLE_EQ(clip_by_global_norm(tensors, 0.5).scale, 0.5 / (5.0 + 1e-6));
  EXPECT_EQ(clip_by_global_norm(tensors, 0.5).norm, 5.0);
  const Tensor broken[] = {Tensor::full({1}, std::nan(""))};
  EXPECT_TRUE(std::isnan(clip_by_global_norm(broken, 1.0).norm));
  EXPECT_EQ(clip_by_global_norm(broken, 1.0).scale, 1.0);
}

}  // namespace
}  // namespace elinvar
