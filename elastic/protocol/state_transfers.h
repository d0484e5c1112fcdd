#pragma once
// The parts of its state and the results that a member sends or saves: parts of a checkpoint, parts of the state and
// results for learners (PROTOCOL.md, "Joining"), and the last result for members that lack it after a death.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "elastic/protocol/facts_outbox.h"
#include "elastic/protocol/gradient_layout.h"
#include "elastic/protocol/member_outbox.h"
#include "elastic/protocol/optimizer_shards.h"
#include "elastic/protocol/scaling_progress.h"

namespace elinvar {

// A part of the state at the boundary after `step` updates, to be copied before the next update, for a checkpoint or a
// learner.
struct StatePart {
  int64_t step = 0;
  int part = 0, parts = 1;
  PeerId to = 0;                         // 0: a checkpoint
  int64_t attempt = 0;                   // the number of the state transfer
  std::vector<EncodedFacts> facts = {};  // unconfirmed facts of earlier steps, which go with the state
  ScalingState scaling_state = {};       // with adaptive scaling: the state's scaling state
  std::optional<int64_t> end = {};       // with adaptive scaling: the last step, if known
  bool attested = false;                 // a digest of the whole state goes with the part: no step need follow
  bool last = false;                     // no update is to follow, so that the part need not be copied
  bool throttled = false;                // steps continue meanwhile, and no worker waits for the learner
  int zero = 0;                          // the stage of ZeRO with which members hold the state
  // With ZeRO: the buckets whose optimizer state is part of it. With `move` it is nothing else, and goes to a member
  // that will keep these buckets.
  std::vector<int> buckets = {};
  bool move = false;
  int64_t generation = 0;  // of a move
};

class StateTransfers {
 public:
  // Checkpoints are scheduled every so many updates; 0: only at the end.
  StateTransfers(int64_t checkpoint_every, const MemberPosition& position, const GradientLayout& layout,
                 MemberOutbox& outbox, const FactsOutbox& facts, const ScalingProgress& scaling,
                 OptimizerShards& shards);

  // Begins to send a learner the state after `step` updates, or answers that this boundary has passed.
  void begin(int64_t step, const messages::SendState& request);
  void stop(PeerId learner) { transfers_.erase(learner); }
  void stop_all() { transfers_.clear(); }
  bool any() const { return !transfers_.empty(); }
  std::vector<messages::Learner> learners() const;

  bool scheduled() const;      // whether the current state belongs in a scheduled checkpoint
  bool asked_to_save() const;  // .. or the current generation begins with a checkpoint of it
  void save(bool attested);    // saves this member's part of a checkpoint of the current state, if it is active
  void at_boundary();          // an update was made: gives the parts due after it
  void move();                 // with ZeRO: gives other members the state that they are to keep
  std::vector<StatePart> take_parts();

  // Sends the result of a reduction to learners that get copies, and keeps it if another process may lack it (`kept`).
  void completed(int64_t step, std::vector<Tensor> values, messages::Trailer trailer, bool kept);
  // With ZeRO: whether learners need the values after the last completed step, and sends them.
  bool wants_values() const { return !value_learners_.empty(); }
  void give_values(int bucket, const std::vector<Blob>& slices);
  void gave_values() { value_learners_.clear(); }
  bool keeps_result() const { return last_trailer_.has_value(); }
  void forget_result();
  // Sends the last result to a worker that lacks it. The worker may be in a generation that this member does not know
  // yet.
  void give_result(const Message& message, const messages::Fetch& fetch);

 private:
  struct Transfer {
    int64_t step;  // the step of the learner's state
    messages::SendState request;
  };
  void give_part(const Transfer& transfer);
  void give_copy(PeerId to, int64_t step, int64_t attempt, const std::vector<Tensor>& values,
                 const messages::Trailer& trailer, bool sharded);

  const int64_t checkpoint_every_;
  const MemberPosition& position_;
  const GradientLayout& layout_;
  MemberOutbox& outbox_;
  const FactsOutbox& facts_;
  const ScalingProgress& scaling_;
  OptimizerShards& shards_;
  std::map<PeerId, Transfer> transfers_;
  std::map<PeerId, int64_t> value_learners_;  // with ZeRO: the attempts of learners that need the values of this update
  std::vector<StatePart> parts_;
  std::vector<Tensor> last_values_;  // the result of step `completed` - 1
  std::optional<messages::Trailer> last_trailer_;
  bool last_sharded_ = false;  // its step was made with ZeRO
};

}  // namespace elinvar
