#pragma once
// The inputs of a step of a run with adaptive scaling besides the network (PROTOCOL.md). They are part of the state.
// Exact scaling has none.
#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "tensor/state.h"

namespace elinvar {

struct ScalingState {
  int64_t samples = 0;  // seen before this step, since the run began
  int64_t batch = 0;    // samples of a whole global batch; 0: scaling is exact
  int64_t since = 0;    // the first step with this batch, where the learning rate's ramp begins
  double from = 1;      // the factor of the configured rate at which the ramp begins
  bool operator==(const ScalingState&) const = default;
};

inline constexpr const char* kScalingState = "pace";  // its name in a dictionary of state

// The scaling settings of a run, which do not change.
struct ScalingOptions {
  int64_t batch = 0;      // the configured batch, the reference of the learning rate; 0: scaling is exact
  int64_t batch_max = 0;  // the largest batch
  int64_t ramp_steps = 100;
  int64_t goal = 0;  // the run ends after this many samples
};

// Returns the factor of the configured learning rate in `step`: from scaling_state.from where the batch changed to
// scaling_state.batch / options.batch, linearly over ramp_steps (Elan, ICDCS 2020). Uses only + - * /, so the bits are
// the same everywhere.
double lr_factor(const ScalingState& scaling_state, int64_t step, const ScalingOptions& options);

// Returns the scaling state of `step` with another batch; unchanged if the batch is the same.
ScalingState rescaled(const ScalingState& scaling_state, int64_t step, int64_t batch, const ScalingOptions& options);

nlohmann::json to_json(const ScalingState& scaling_state);    // [samples, batch, since, bits of from]
ScalingState scaling_state_from(const nlohmann::json& json);  // throws Failure and nlohmann::json::exception
Tensor to_tensor(const ScalingState& scaling_state);          // the same numbers
// Returns the stored scaling state, or that of exact scaling if `state` has none. Throws Failure.
ScalingState scaling_state_of(const StateDict& state);

}  // namespace elinvar
