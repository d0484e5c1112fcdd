#pragma once
// The scaling state (elastic/step/scaling_state.h) of a member's state, and that of the next step. With exact scaling
// both are empty.
#include <optional>

#include "elastic/protocol/member_position.h"

namespace elinvar {

class ScalingProgress {
 public:
  explicit ScalingProgress(const ScalingOptions& options) : options_(options) {}

  bool adaptive() const { return options_.batch > 0; }
  bool goal_reached() const { return adaptive() && made_.samples >= options_.goal; }
  const ScalingState& made() const { return made_; }  // the scaling state of the last step, including its samples
  ScalingState current() const { return current_.value_or(made_); }  // the scaling state of step `completed`
  // Null unless current() is known for certain.
  const std::optional<ScalingState>& certain() const { return current_; }

  void set_made(const ScalingState& made) { made_ = made; }
  void forget_current() { current_.reset(); }
  // Determines the scaling state of step `completed`, unless it is already certain: a generation that begins later does
  // not change it.
  void settle(const MemberPosition& position);

 private:
  ScalingOptions options_;
  ScalingState made_;
  std::optional<ScalingState> current_;
};

}  // namespace elinvar
