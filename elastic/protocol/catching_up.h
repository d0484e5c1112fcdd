#pragma once
// Where a newcomer gets the state from that it begins with: it restores a checkpoint, or learns the state from members,
// in pieces that belong to one numbered attempt (PROTOCOL.md, "Joining").
#include <optional>
#include <set>
#include <vector>

#include "elastic/protocol/joining_messages.h"

namespace elinvar {

// What is to be put into the network: checkpoint `restore` (0: as a new network is), or the pieces.
struct StateLoad {
  std::optional<int64_t> restore = {};
  int64_t step = 0, attempt = 0;
  std::vector<messages::StatePieces> pieces = {};
  ScalingState scaling_state = {};  // in that state; of a checkpoint's whoever reads it says it
  std::optional<int64_t> end = {};
};

class CatchingUp {
 public:
  // Whether it is told to restore another checkpoint than before: then nothing that it has counts.
  bool restore(int64_t step);
  void learn() { learns_ = true; }  // the state is to come from members,
  void cannot_restore();            // or has to, since the checkpoint cannot be seen from here
  bool learns() const { return learns_; }
  bool restores() const { return restore_.has_value(); }
  int64_t attempt() const { return attempt_; }

  enum class Took { dropped, piece, first_piece };  // of an older attempt; of this one; the first of a newer one
  Took take(int64_t step, const messages::StatePieces& pieces);

  bool can_load() const { return restore_ || whole_; }
  StateLoad load();
  bool is_current(const StateLoad& load) const { return load.attempt == attempt_ && load.restore == restore_; }

 private:
  bool learns_ = false;
  std::optional<int64_t> restore_;
  int64_t attempt_ = 0;
  std::vector<messages::StatePieces> pieces_;  // of this attempt
  std::set<int> parts_;                        // that are whole
  bool whole_ = false;                         // all are
  int64_t step_ = -1;
  ScalingState scaling_state_;
  std::optional<int64_t> end_;
};

}  // namespace elinvar
