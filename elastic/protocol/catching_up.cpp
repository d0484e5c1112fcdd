#include "elastic/protocol/catching_up.h"

#include <utility>

namespace elinvar {

bool CatchingUp::restore(int64_t step, int zero) {
  learns_ = false;
  if (restore_ == step && zero_ == zero) return false;
  restore_ = step;
  zero_ = zero;
  ended_ = attempt_ > 0;
  whole_ = ready_ = false;
  return true;
}

void CatchingUp::forget() {
  restore_.reset();
  ready_ = false;
}

void CatchingUp::cannot_load(const StateLoad& load) {
  if (position_.active() || !is_current(load)) return;
  restore_.reset();
  learn();
  outbox_.report(messages::Blind{});
}

void CatchingUp::report_warm() {
  if (learns_ && !position_.active()) outbox_.report(messages::Warm{});
}

void CatchingUp::report_ready() {
  ready_ = true;
  outbox_.report(messages::Ready{restore_ ? 0 : attempt_});
}

CatchingUp::Took CatchingUp::take(int64_t step, const messages::StatePieces& pieces) {
  if (!learns_ || pieces.attempt < counts_from()) return Took::dropped;
  const bool first = pieces.attempt > attempt_;
  if (first) {
    attempt_ = pieces.attempt;
    ended_ = false;
    step_ = step;
    scaling_state_ = pieces.scaling_state.value_or(ScalingState{});
    end_ = pieces.end;
    pieces_.clear();
    parts_.clear();
    restore_.reset();
    ready_ = false;
  }
  if (pieces.last) parts_.insert(pieces.part);
  whole_ = static_cast<int>(parts_.size()) == pieces.parts;
  pieces_.push_back(pieces);
  return first ? Took::first_piece : Took::piece;
}

StateLoad CatchingUp::load() {
  StateLoad load{.restore = restore_,
                 .zero = zero_,
                 .step = restore_ ? *restore_ : step_,
                 .attempt = attempt_,
                 .pieces = std::exchange(pieces_, {}),
                 .scaling_state = scaling_state_,
                 .end = restore_ ? std::nullopt : end_};
  whole_ = false;
  return load;
}

}  // namespace elinvar
