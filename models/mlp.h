#pragma once
// A multilayer perceptron on flattened samples: linear layers, an activation (and dropout) after each but the last.
// Parameters: layers.<i>.weight, layers.<i>.bias.
#include <memory>
#include <string>
#include <vector>

#include "models/input_info.h"
#include "nn/network.h"

namespace elinvar {

struct MlpOptions {
  std::vector<int64_t> hidden = {256};
  std::string activation = "relu";
  double dropout = 0.0;
};

std::unique_ptr<Network> mlp(const MlpOptions& options, const InputInfo& input, uint64_t seed);

}  // namespace elinvar
