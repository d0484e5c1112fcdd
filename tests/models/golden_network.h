#pragma once
// Compares a network with a golden file from PyTorch in float64: logits, every gradient, ten losses, and logits after
// ten steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "tensor/safetensors.h"
#include "tests/models/hashed_inputs.h"
#include "tests/places.h"

namespace elinvar {

inline constexpr double kGoldenTolerance = 2e-5;  // roundings to float32 over ten steps, as in golden_test.cpp

// Returns the largest difference, relative to the largest expected magnitude.
inline double golden_difference(const Tensor& given, const Tensor& expected) {
  EXPECT_EQ(given.shape(), expected.shape());
  double worst = 0, largest = 0;
  const Tensor got = given.to_contiguous();
  for (int64_t i = 0; i < got.numel(); ++i) {
    const double a = got.data<float>()[i], b = expected.data<float>()[i];
    worst = a == a ? std::max(worst, std::abs(a - b)) : INFINITY;
    largest = std::max(largest, std::abs(b));
  }
  return worst / largest;
}

inline Tensor logits_of(const Network& network, const Inputs& inputs) {
  return predict(network, std::span(&inputs, 1));
}

// `network` is `whole`, perhaps in virtual shards. Gradients of the parameters in `noise` must be nearly zero.
inline void compare_with_golden(const std::string& name, Network& whole, Network& network, const Inputs& inputs,
                                const Tensor& target, const std::function<bool(const std::string&)>& noise = {},
                                const Task& task = {}) {
  const StateDict golden =
      read_safetensors(std::string(ELINVAR_SOURCE_DIR "/tests/golden/") + name + ".safetensors").tensors;
  fill_initial(whole.parameters);
  network.parameters.load_whole(whole.parameters.state());
  EXPECT_LE(golden_difference(logits_of(network, inputs), golden.at("logits")), kGoldenTolerance);
  train_ten_steps(network, {.kind = "adamw", .lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .weight_decay = 0.1}, inputs,
                  target, task, [&](int64_t step, double loss, const std::vector<Tensor>& gradients) {
                    const double expected = golden.at("losses").data<float>()[step];
                    EXPECT_NEAR(loss, expected, kGoldenTolerance * expected) << "step " << step;
                    if (step > 0) return;
                    Parameters holder;
                    for (size_t i = 0; i < gradients.size(); ++i) {
                      holder.list.push_back(network.parameters.list[i]);
                      holder.list[i].var = Var(gradients[i]);
                    }
                    for (const auto& [parameter, got] : holder.whole_state()) {
                      if (!noise || !noise(parameter)) {
                        EXPECT_LE(golden_difference(got, golden.at("grad/" + parameter)), kGoldenTolerance)
                            << parameter;
                        continue;
                      }
                      for (int64_t k = 0; k < got.numel(); ++k)
                        EXPECT_LE(std::abs(got.data<float>()[k]), 1e-8) << parameter;
                    }
                  });
  EXPECT_LE(golden_difference(logits_of(network, inputs), golden.at("eval_logits")), 5 * kGoldenTolerance);
}

}  // namespace elinvar
