#include "elastic/step/scaling_state.h"

#include <bit>
#include <nlohmann/json.hpp>
#include <optional>

#include "comm/fields.h"
#include "tensor/base/check.h"

namespace elinvar {

double lr_factor(const ScalingState& scaling_state, int64_t step, const ScalingOptions& options) {
  const double to = static_cast<double>(scaling_state.batch) / static_cast<double>(options.batch);
  const int64_t done = step - scaling_state.since;
  if (done >= options.ramp_steps) return to;
  return scaling_state.from +
         (to - scaling_state.from) * (static_cast<double>(done) / static_cast<double>(options.ramp_steps));
}

ScalingState rescaled(const ScalingState& scaling_state, int64_t step, int64_t batch, const ScalingOptions& options) {
  if (batch == scaling_state.batch) return scaling_state;
  return {
      .samples = scaling_state.samples, .batch = batch, .since = step, .from = lr_factor(scaling_state, step, options)};
}

nlohmann::json to_json(const ScalingState& scaling_state) {
  return {scaling_state.samples, scaling_state.batch, scaling_state.since, std::bit_cast<int64_t>(scaling_state.from)};
}

ScalingState scaling_state_from(const nlohmann::json& json) {
  const auto count = [&](size_t i) {
    if (const std::optional<int64_t> value = integer_from<int64_t>(json.at(i))) return *value;
    fail("expected an integer from {} to {}, got {}", kLeastReceived<int64_t>, kMostReceived<int64_t>,
         json.at(i).dump());
  };
  return {.samples = count(0),
          .batch = count(1),
          .since = count(2),
          .from = std::bit_cast<double>(json.at(3).get<int64_t>())};
}

Tensor to_tensor(const ScalingState& scaling_state) {
  return Tensor::from(std::vector<int64_t>{scaling_state.samples, scaling_state.batch, scaling_state.since,
                                           std::bit_cast<int64_t>(scaling_state.from)},
                      {4});
}

ScalingState scaling_state_of(const StateDict& state) {
  const auto found = state.find(kScalingState);
  if (found == state.end()) return {};
  if (found->second.dtype() != DType::i64 || found->second.shape() != Shape{4}) fail("[pace] expected 4 integers");
  const auto* n = found->second.data<int64_t>();
  return {.samples = n[0], .batch = n[1], .since = n[2], .from = std::bit_cast<double>(n[3])};
}

}  // namespace elinvar
