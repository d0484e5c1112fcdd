#pragma once
// Networks, inputs and ten steps of training as in golden/make_golden.py, which computes the same values.
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "models/build.h"
#include "nn/micro_batch.h"
#include "nn/optimizer.h"
#include "nn/running_statistics.h"
#include "tensor/philox.h"

namespace elinvar {

// Replaces stored values: 24 bits as a function of a name and an index.
inline uint32_t hashed(uint64_t key, int64_t i) {
  uint64_t x = key + (static_cast<uint64_t>(i) + 1) * 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u;
  x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u;
  return static_cast<uint32_t>(x >> 40);
}

inline double symmetric(uint64_t key, int64_t i) { return hashed(key, i) * 0x1p-23 - 1.0; }

inline void fill_initial(Parameters& parameters) {
  for (Parameter& p : parameters.list) {
    Tensor& t = p.var.mutable_value();
    const bool vector = t.ndim() == 1;
    const double scale = vector ? 4.0 : std::sqrt(static_cast<double>(t.numel() / t.dim(0)));
    const double offset = vector && p.name.ends_with("weight") ? 1.0 : 0.0;
    for (int64_t i = 0; i < t.numel(); ++i)
      t.data<float>()[i] = static_cast<float>(symmetric(key_of(p.name), i) / scale + offset);
  }
}

inline Tensor images(int64_t n, int64_t side, const std::string& name = "input") {
  Tensor t = Tensor::empty({n, side, side, 3});
  for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = static_cast<float>(symmetric(key_of(name), i));
  return t;
}

template <class T>
Tensor integers(const std::string& name, const Shape& shape, uint32_t limit) {
  Tensor t = Tensor::empty(shape, dtype_of<T>());
  for (int64_t i = 0; i < t.numel(); ++i) t.data<T>()[i] = static_cast<T>(hashed(key_of(name), i) % limit);
  return t;
}

inline Spec spec(const std::string& kind, std::map<std::string, Value> settings) {
  Spec s{.kind = kind};
  for (auto& [name, value] : settings) s.settings[name] = {std::move(value)};
  return s;
}

// Trains for ten steps on one batch. Calls each(step, loss, gradients) before each update, with the mean loss and the
// gradients of the mean loss.
inline void train_ten_steps(
    Network& network, const OptimizerConfig& config, const Inputs& input, const Tensor& target, const Task& task,
    const std::function<void(int64_t step, double loss, const std::vector<Tensor>& gradients)>& each) {
  Parameters& parameters = network.parameters;
  if (config.kind == "adamw") exempt_from_decay(parameters, std::vector<std::string>{"vectors"});
  const auto optimizer = make_optimizer(config, parameters);
  for (int64_t step = 0; step < 10; ++step) {
    MicroBatchResult result = micro_batch_gradient(network, input, target, task, Rng{.seed = 1});
    const auto count = static_cast<double>(result.count);
    for (Tensor& g : result.gradients)
      for (float& x : g.span<float>()) x = static_cast<float>(x / count);
    each(step, result.loss_sum / count, result.gradients);
    optimizer->step(parameters, result.gradients, config.lr, step);
    update_running_statistics(result.statistics, batch_statistics_of(result.statistics), 1);
  }
}

}  // namespace elinvar
