#pragma once
// What a step of a run with adaptive scaling depends on besides the network (PROTOCOL.md): a part of the state. With
// exact scaling there is none of it.
#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "tensor/state.h"

namespace elinvar {

struct ScalingState {
  int64_t samples = 0;  // seen before this step, since the run began
  int64_t batch = 0;    // samples of a whole global batch; 0: scaling is exact
  int64_t since = 0;    // the first step with this batch: there the learning rate's ramp begins,
  double from = 1;      // at so many times the configured rate
  bool operator==(const ScalingState&) const = default;
};

inline constexpr const char* kScalingState = "pace";  // its name in a dictionary of state

// What is fixed for a run.
struct ScalingOptions {
  int64_t batch = 0;      // the configured one, from which the rate is scaled; 0: scaling is exact
  int64_t batch_max = 0;  // never more
  int64_t ramp_steps = 100;
  int64_t goal = 0;  // the run is over when so many samples are seen
};

// What the configured learning rate is multiplied by in `step`: from scaling_state.from where the batch changed to
// scaling_state.batch / options.batch, linearly over ramp_steps (Elan, ICDCS 2020). By + - * / alone, so it has the
// same bits everywhere.
double lr_factor(const ScalingState& scaling_state, int64_t step, const ScalingOptions& options);

// The scaling state of `step` if its batch is another one; of the same batch nothing changes.
ScalingState rescaled(const ScalingState& scaling_state, int64_t step, int64_t batch, const ScalingOptions& options);

nlohmann::json to_json(const ScalingState& scaling_state);    // [samples, batch, since, bits of from]
ScalingState scaling_state_from(const nlohmann::json& json);  // throws nlohmann::json::exception
Tensor to_tensor(const ScalingState& scaling_state);          // the same numbers
ScalingState scaling_state_of(
    const StateDict& state);  // that it holds; that of exact scaling if there is none; throws Failure

}  // namespace elinvar
