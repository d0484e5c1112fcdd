#pragma once
// The source of a newcomer's first state: it restores a checkpoint, or learns the state from members, in pieces that
// belong to one numbered attempt (PROTOCOL.md, "Joining").
#include <optional>
#include <set>
#include <vector>

#include "elastic/protocol/joining_messages.h"

namespace elinvar {

// The state to load into the network: checkpoint `restore` (0: the initial state of a new network), or the pieces.
struct StateLoad {
  std::optional<int64_t> restore = {};
  int64_t step = 0, attempt = 0;
  std::vector<messages::StatePieces> pieces = {};
  ScalingState scaling_state = {};  // the loaded state's; for a checkpoint, the reader sets it
  std::optional<int64_t> end = {};
};

class CatchingUp {
 public:
  // Handles the order to restore a checkpoint. Returns whether it differs from the previous one; then earlier pieces do
  // not count.
  bool restore(int64_t step);
  void learn() { learns_ = true; }  // the state is to come from members
  void cannot_restore();            // the state must come from members, because the checkpoint cannot be read from here
  bool learns() const { return learns_; }
  bool restores() const { return restore_.has_value(); }
  int64_t attempt() const { return attempt_; }

  // dropped: the piece is of an older attempt. first_piece: the first of a newer attempt.
  enum class Took { dropped, piece, first_piece };
  Took take(int64_t step, const messages::StatePieces& pieces);

  bool can_load() const { return restore_ || whole_; }
  StateLoad load();
  bool is_current(const StateLoad& load) const { return load.attempt == attempt_ && load.restore == restore_; }

 private:
  bool learns_ = false;
  std::optional<int64_t> restore_;
  int64_t attempt_ = 0;
  std::vector<messages::StatePieces> pieces_;  // pieces of the current attempt
  std::set<int> parts_;                        // complete parts
  bool whole_ = false;                         // all parts are complete
  int64_t step_ = -1;
  ScalingState scaling_state_;
  std::optional<int64_t> end_;
};

}  // namespace elinvar
