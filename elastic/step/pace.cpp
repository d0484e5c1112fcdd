#include "elastic/step/pace.h"

#include <bit>
#include <nlohmann/json.hpp>

#include "tensor/base/check.h"

namespace elinvar {

double lr_factor(const Pace& pace, int64_t step, const ScalingOptions& options) {
  const double to = static_cast<double>(pace.batch) / static_cast<double>(options.batch);
  const int64_t done = step - pace.since;
  if (done >= options.ramp_steps) return to;
  return pace.from + (to - pace.from) * (static_cast<double>(done) / static_cast<double>(options.ramp_steps));
}

Pace rescaled(const Pace& pace, int64_t step, int64_t batch, const ScalingOptions& options) {
  if (batch == pace.batch) return pace;
  return {.samples = pace.samples, .batch = batch, .since = step, .from = lr_factor(pace, step, options)};
}

nlohmann::json to_json(const Pace& pace) {
  return {pace.samples, pace.batch, pace.since, std::bit_cast<int64_t>(pace.from)};
}

Pace pace_from(const nlohmann::json& json) {
  return {.samples = json.at(0).get<int64_t>(),
          .batch = json.at(1).get<int64_t>(),
          .since = json.at(2).get<int64_t>(),
          .from = std::bit_cast<double>(json.at(3).get<int64_t>())};
}

Tensor to_tensor(const Pace& pace) {
  return Tensor::from(std::vector<int64_t>{pace.samples, pace.batch, pace.since, std::bit_cast<int64_t>(pace.from)},
                      {4});
}

Pace pace_of(const StateDict& state) {
  const auto found = state.find(kPace);
  if (found == state.end()) return {};
  if (found->second.dtype() != DType::i64 || found->second.shape() != Shape{4}) fail("[pace] expected 4 integers");
  const auto* n = found->second.data<int64_t>();
  return {.samples = n[0], .batch = n[1], .since = n[2], .from = std::bit_cast<double>(n[3])};
}

}  // namespace elinvar
