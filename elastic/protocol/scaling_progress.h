#pragma once
// Which scaling state (elastic/step/scaling_state.h) a member's state has, and which the step has that follows. With
// exact scaling both are empty.
#include <optional>

#include "elastic/protocol/member_position.h"

namespace elinvar {

class ScalingProgress {
 public:
  explicit ScalingProgress(const ScalingOptions& options) : options_(options) {}

  bool adaptive() const { return options_.batch > 0; }
  bool goal_reached() const { return adaptive() && made_.samples >= options_.goal; }
  const ScalingState& made() const { return made_; }  // that of the state: of the last step, with its samples
  ScalingState current() const { return current_.value_or(made_); }        // of step `completed`
  const std::optional<ScalingState>& certain() const { return current_; }  // the same; none: not known for certain yet

  void set_made(const ScalingState& made) { made_ = made; }
  void forget_current() { current_.reset(); }
  // Finds that of step `completed`, unless it is certain already: a generation that begins later says nothing of it.
  void settle(const MemberPosition& position);

 private:
  ScalingOptions options_;
  ScalingState made_;
  std::optional<ScalingState> current_;
};

}  // namespace elinvar
