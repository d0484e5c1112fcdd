#pragma once
// A worker's side of the protocol (PROTOCOL.md), without threads, clock and network: it is told what the loop does and
// which messages have come, and says what is to be sent and done. The worker's process (elastic/session/session.h) and
// the simulator run this same code.
//
// A member's life: it introduces itself (hello); it is a *learner* that gets the state of some step and then the
// reduced gradients of every step after it; in the generation that first counts it as a member it becomes *active*,
// computes rank gradients and takes part in every reduction; it leaves when a generation is without it, or when the run
// ends.
//
// A member decides which generation it is in and when a step is complete. The rest is done by its parts, each with
// state of its own: the step's reduction, its audit, groups of GPUs, catching up, and what is given to others.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "elastic/protocol/catching_up.h"
#include "elastic/protocol/facts_outbox.h"
#include "elastic/protocol/member_groups.h"
#include "elastic/protocol/member_outbox.h"
#include "elastic/protocol/member_position.h"
#include "elastic/protocol/scaling_progress.h"
#include "elastic/protocol/state_transfers.h"
#include "elastic/protocol/step_audit.h"
#include "elastic/protocol/step_reduction.h"

namespace elinvar {

struct MemberOptions {
  PeerId self = 0;
  std::string endpoint = {};  // of its inbox
  int vranks = 1;
  int64_t steps = 0;  // of the whole run
  int64_t bucket_elements = 1 << 20;
  int64_t checkpoint_every = 0;    // 0: only at the end
  int64_t state_digest_every = 0;  // 0: only at checkpoints and at the end
  ScalingOptions scaling = {};     // if it is adaptive, its goal ends the run, not `steps`
  AuditOptions audit = {};
  bool groups = false;  // this worker is a GPU that can be in a group (comm/gpu_group.h)
  int untold = 32;      // steps whose facts the leader may gather before it tells of them; 1: each at once
  std::function<void(int64_t step, int bucket, std::vector<Tensor>& sums)> spoil = {};  // StepReduction::Options
};

class Member {
 public:
  explicit Member(const MemberOptions& options);
  Member(const Member&) = delete;  // its parts refer to each other
  Member& operator=(const Member&) = delete;

  const MemberPosition& position() const { return position_; }
  const ScalingProgress& scaling() const { return scaling_; }
  StepReduction& reduction() { return reduction_; }
  StepAudit& audit() { return audit_; }
  MemberGroups& groups() { return groups_; }

  // --- The loop: next() until it says what to do, then that, then advance().
  enum class Next {
    wait,    // for a message
    layout,  // learn_layout() of a leaf that counts for nothing: so a newcomer warms up before others have work with it
    load,    // take_load() into the network, then loaded()
    leaves,  // compute reduction().todo(), add each, contribute(), reduce() until complete, update, advance()
    replay,  // from checkpoint audit().begin_replay() this worker makes its state anew, which stays its state
    copy,    // the same without leaves and contribution: the result comes from somebody who has it. Needs the layout
    done,    // outcome() says why
  };
  Next next();
  void learn_layout(const RankGradient& leaf);  // of any leaf that has samples
  bool digest_due() const;                      // of the state now: it goes to contribute()
  void contribute(const std::optional<Digest>& state, const StateDigests& parts = {});
  enum class Progress { waiting, complete, abandoned };
  Progress reduce();  // adds up what can be, on the caller's CPU stream
  Reduced take_reduced();
  // The update is made. The facts are for the coordinator; their step is this one.
  void advance(StepFacts facts);

  // --- The state of a newcomer.
  StateLoad take_load();
  void loaded(const StateLoad& load);       // it is in the network now; ignored if another one has begun to come
  void cannot_load(const StateLoad& load);  // a checkpoint that cannot be seen from here: others will send their state

  // --- The outside.
  void receive(const Message& message);
  void lost(PeerId peer, const std::string& reason);
  void introduce(PeerId coordinator, const WorkerInfo& about);  // says hello, also to a later coordinator
  void heartbeat(messages::Alive alive);
  void drain();  // asks to leave
  // The run ends with this worker; what is known of the steps before goes to the coordinator first.
  void failed(const std::string& reason, int exit_code);
  void give_up(const std::string& reason);  // there is no coordinator any more
  void suspect(PeerId peer, const std::string& reason);

  std::vector<Action> take_actions() { return outbox_.take(); }
  std::vector<StatePart> take_parts() { return transfers_.take_parts(); }
  struct Outcome {
    std::string what;  // "finished", "stopped", "left", "refused", "expelled", "alone"
    std::string reason;
    bool again = false;  // it may come back, as a new worker
  };
  const std::optional<Outcome>& outcome() const { return outcome_; }

 private:
  void obey(const Message& message);
  void welcome(const messages::Welcome& welcome);
  void start(const messages::Start& start);
  void propose(Generation generation);
  void enter(Generation generation, int64_t first_step);
  void enter_agreed();
  void fenced_by(int64_t fence);
  void finish_reduction();
  void set_made(const ScalingState& state);
  void receive_state(int64_t step, const messages::StatePieces& pieces);
  void forget_state();
  void listen();
  void tell_ready();
  void tell(std::vector<TellsFacts> facts);
  void tell_all_facts();  // that are not confirmed
  void tell_new_facts();  // that were not told yet, if this member leads
  bool scheduled() const;
  bool asked_to_save() const;

  MemberOptions options_;
  MemberPosition position_;
  MemberOutbox outbox_;
  FactsOutbox facts_;
  ScalingProgress scaling_;
  CatchingUp catching_up_;
  StepAudit audit_;
  MemberGroups groups_;
  ExchangeInbox inbox_;
  StepReduction reduction_;
  StateTransfers transfers_;

  bool ready_told_ = false, waiting_for_release_ = false, draining_ = false;
  int64_t agreed_ = 0;  // the newest generation that a trailer showed everyone to hold
  PeerId ahead_ = 0;    // who has the result that this member lacks, after a fence; 0: asked already
  Reduced reduced_;
  std::optional<Outcome> outcome_;
};

}  // namespace elinvar
