#pragma once
// The whole state of a run: what is saved, sent and digested.
#include <optional>

#include "elastic/step/scaling_state.h"

namespace elinvar {

// That of its network and optimiser after `step` updates, with the step and, with adaptive scaling, the scaling_state.
StateDict whole_state(StateDict state, int64_t step, const std::optional<ScalingState>& scaling_state);

}  // namespace elinvar
