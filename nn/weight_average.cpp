#include "nn/weight_average.h"

#include <algorithm>
#include <utility>

#include "tensor/base/check.h"
#include "tensor/ops/optimizer.h"

namespace elinvar {
namespace {

// Moves the averages towards the weights and, in the same launch, buffers towards those of `parameters`.
void follow_all(std::vector<Tensor> averages, std::vector<Tensor> weights,
                std::span<const std::shared_ptr<Buffer>> buffers, const Parameters& parameters, double decay,
                int64_t step) {
  check(decay >= 0.0 && decay < 1.0, "[weight_average] decay must be in [0, 1), got {}", decay);
  check(averages.size() == weights.size() && buffers.size() == parameters.buffers.size(),
        "[weight_average] {} parameters and {} buffers expected, got {} and {}", weights.size(),
        parameters.buffers.size(), averages.size(), buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    averages.push_back(buffers[i]->value);
    weights.push_back(parameters.buffers[i]->value);
  }
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

}  // namespace

void follow(Parameters& average, const Parameters& parameters, double decay, int64_t step) {
  std::vector<Tensor> averages, weights;
  for (Parameter& p : average.list) averages.push_back(p.var.mutable_value());
  for (const Parameter& p : parameters.list) weights.push_back(p.var.value());
  follow_all(std::move(averages), std::move(weights), average.buffers, parameters, decay, step);
}

void follow(SlicedTensors& average, std::span<const std::shared_ptr<Buffer>> buffers, const Parameters& parameters,
            double decay, int64_t step) {
  check(average.tensors().size() == 1, "[weight_average] one slot expected, got {}", average.tensors().size());
  follow_all(average.tensors()[0], views_of(parameters, average.slices()), buffers, parameters, decay, step);
}

}  // namespace elinvar
