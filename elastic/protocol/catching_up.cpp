#include "elastic/protocol/catching_up.h"

#include <utility>

namespace elinvar {

bool CatchingUp::restore(int64_t step) {
  learns_ = false;
  if (restore_ == step) return false;
  restore_ = step;
  whole_ = false;
  return true;
}

void CatchingUp::cannot_restore() {
  restore_.reset();
  learn();
}

CatchingUp::Took CatchingUp::take(int64_t step, const messages::StatePieces& pieces) {
  if (pieces.attempt < attempt_) return Took::dropped;
  const bool first = pieces.attempt > attempt_;
  if (first) {
    attempt_ = pieces.attempt;
    step_ = step;
    scaling_state_ = pieces.scaling_state.value_or(ScalingState{});
    end_ = pieces.end;
    pieces_.clear();
    parts_.clear();
    restore_.reset();
  }
  if (pieces.last) parts_.insert(pieces.part);
  whole_ = static_cast<int>(parts_.size()) == pieces.parts;
  pieces_.push_back(pieces);
  return first ? Took::first_piece : Took::piece;
}

StateLoad CatchingUp::load() {
  StateLoad load{.restore = restore_,
                 .step = restore_ ? *restore_ : step_,
                 .attempt = attempt_,
                 .pieces = std::exchange(pieces_, {}),
                 .scaling_state = scaling_state_,
                 .end = restore_ ? std::nullopt : end_};
  whole_ = false;
  return load;
}

}  // namespace elinvar
