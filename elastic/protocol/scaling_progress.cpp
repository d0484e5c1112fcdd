#include "elastic/protocol/scaling_progress.h"

namespace elinvar {

void ScalingProgress::settle(const MemberPosition& position) {
  if (!adaptive() || current_ || !position.begun() || !position.generation->scaling) return;
  const GenerationScaling& scaling = *position.generation->scaling;
  ScalingState state = made_;
  if (position.completed == position.generation->first_step) {
    if (scaling.scaling_state) state = *scaling.scaling_state;
    else if (scaling.batch > 0) state = rescaled(state, position.completed, scaling.batch, options_);
  }
  for (const auto& [step, batch] : scaling.recorded)
    if (step == position.completed) state = rescaled(state, step, batch, options_);
  current_ = state;
}

}  // namespace elinvar
