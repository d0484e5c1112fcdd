#include "nn/weight_average.h"

#include <algorithm>

#include "tensor/base/check.h"
#include "tensor/ops/optimizer.h"

namespace elinvar {

void follow(Parameters& average, const Parameters& parameters, double decay, int64_t step) {
  check(average.list.size() == parameters.list.size() && average.buffers.size() == parameters.buffers.size(),
        "[weight_average] {} parameters and {} buffers expected, got {} and {}", average.list.size(),
        average.buffers.size(), parameters.list.size(), parameters.buffers.size());
  std::vector<Tensor> averages, weights;
  for (size_t i = 0; i < parameters.list.size(); ++i) {
    averages.push_back(average.list[i].var.mutable_value());
    weights.push_back(parameters.list[i].var.value());
  }
  for (size_t i = 0; i < parameters.buffers.size(); ++i) {
    averages.push_back(average.buffers[i]->value);
    weights.push_back(parameters.buffers[i]->value);
  }
  follow(averages, weights, decay, step);
}

void follow(std::vector<Tensor>& averages, const std::vector<Tensor>& weights, double decay, int64_t step) {
  check(decay >= 0.0 && decay < 1.0, "[weight_average] decay must be in [0, 1), got {}", decay);
  check(averages.size() == weights.size(), "[weight_average] {} averages but {} weights", averages.size(),
        weights.size());
  const auto t = static_cast<double>(step);
  const double rate = 1.0 - std::min(decay, (1.0 + t) / (10.0 + t));
  std::vector<SgdArgs> constants;
  for (const Tensor& w : weights) {
    SgdArgs a{};
    a.n = w.numel();
    a.scale = -1;
    a.weight_decay = 1;
    a.lr = static_cast<float>(rate);
    constants.push_back(a);
  }
  std::vector<Tensor> none;
  sgd(weights, averages, none, constants);
}

}  // namespace elinvar
