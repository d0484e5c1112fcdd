#pragma once
// The whole state of a run, as it is saved, sent and digested.
#include <optional>

#include "elastic/step/scaling_state.h"

namespace elinvar {

// Returns the state of a network and its optimiser after `step` updates, with the step and, with adaptive scaling, the
// scaling state.
StateDict whole_state(StateDict state, int64_t step, const std::optional<ScalingState>& scaling_state);

}  // namespace elinvar
