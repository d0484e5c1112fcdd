#pragma once
// The source of a newcomer's first state: it restores a checkpoint, or learns the state from members, in pieces that
// belong to one numbered attempt (PROTOCOL.md, "Joining"). The coordinator hears how far the newcomer is.
#include <optional>
#include <set>
#include <vector>

#include "elastic/protocol/member_outbox.h"

namespace elinvar {

// The state to load into the network: checkpoint `restore` (0: the initial state of a new network), to be held with
// this stage of ZeRO, or the pieces.
struct StateLoad {
  std::optional<int64_t> restore = {};
  int zero = 0;
  int64_t step = 0, attempt = 0;
  std::vector<messages::StatePieces> pieces = {};
  ScalingState scaling_state = {};  // the loaded state's; for a checkpoint, the reader sets it
  std::optional<int64_t> end = {};
};

class CatchingUp {
 public:
  CatchingUp(const MemberPosition& position, MemberOutbox& outbox) : position_(position), outbox_(outbox) {}

  // Handles the order to restore a checkpoint. Returns whether it differs from the previous one; then earlier pieces do
  // not count.
  bool restore(int64_t step, int zero = 0);
  void forget();                    // the state that it restored is gone: it restores it again if told to
  void learn() { learns_ = true; }  // the state is to come from members
  bool learns() const { return learns_; }
  bool restores() const { return restore_.has_value(); }
  int64_t attempt() const { return attempt_; }
  // The oldest attempt whose pieces and results count. An order to restore a checkpoint ends the current one: with
  // adaptive scaling its results may be those of an earlier history.
  int64_t counts_from() const { return ended_ ? attempt_ + 1 : attempt_; }

  // dropped: the piece is of an older attempt, or this worker is to restore a checkpoint: the sender may not know that
  // it was evicted. first_piece: the first of a newer attempt.
  enum class Took { dropped, piece, first_piece };
  Took take(int64_t step, const messages::StatePieces& pieces);

  // Returns the state to load. The loop answers by Member::loaded() or by cannot_load(), which says that the checkpoint
  // cannot be read from here: members send their state.
  bool can_load() const { return restore_ || whole_; }
  StateLoad load();
  void cannot_load(const StateLoad& load);
  bool is_current(const StateLoad& load) const { return load.attempt == attempt_ && load.restore == restore_; }

  void report_warm();   // if the state is to come from members: the first rank gradient is computed
  void report_ready();  // the newcomer has caught up
  bool ready() const { return ready_; }

 private:
  const MemberPosition& position_;
  MemberOutbox& outbox_;
  bool learns_ = false, ready_ = false;
  std::optional<int64_t> restore_;
  int zero_ = 0;  // .. with this stage of ZeRO
  int64_t attempt_ = 0;
  bool ended_ = false;                         // a checkpoint is to be restored instead
  std::vector<messages::StatePieces> pieces_;  // pieces of the current attempt
  std::set<int> parts_;                        // complete parts
  bool whole_ = false;                         // all parts are complete
  int64_t step_ = -1;
  ScalingState scaling_state_;
  std::optional<int64_t> end_;
};

}  // namespace elinvar
