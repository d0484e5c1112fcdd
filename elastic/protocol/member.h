#pragma once
// A worker's side of the protocol (PROTOCOL.md), without threads, clock and network. It takes the loop's calls and the
// messages received, and returns what to send and do. The worker's process (elastic/session/session.h) and the
// simulator run this same code.
//
// A member's life: it introduces itself (hello). Then it is a *learner*, which gets the state of some step and the
// reduced gradients of every later step. In the first generation that counts it as a member it becomes *active*,
// computes rank gradients and takes part in every reduction. It leaves when a generation does not contain it, or when
// the run ends.
//
// A member decides which generation it is in and when a step is complete. Its parts do the rest, each with its own
// state: the step's rank gradients, their reduction, its audit, groups of GPUs, catching up, and transfers to others.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "elastic/protocol/catching_up.h"
#include "elastic/protocol/facts_outbox.h"
#include "elastic/protocol/member_groups.h"
#include "elastic/protocol/member_outbox.h"
#include "elastic/protocol/member_position.h"
#include "elastic/protocol/missed_results.h"
#include "elastic/protocol/parameter_fetch.h"
#include "elastic/protocol/replica_exchange.h"
#include "elastic/protocol/scaling_progress.h"
#include "elastic/protocol/stage_exchange.h"
#include "elastic/protocol/state_transfers.h"
#include "elastic/protocol/step_audit.h"
#include "elastic/protocol/step_gradients.h"
#include "elastic/protocol/value_exchange.h"

namespace elinvar {

struct MemberOptions {
  PeerId self = 0;
  std::string endpoint = {};  // the member's inbox
  int vranks = 1;
  int64_t steps = 0;  // number of updates in the whole run
  int64_t bucket_elements = 1 << 20;
  std::optional<ShardOptions> sharding = {};  // with ZeRO
  std::optional<TensorParts> parts = {};      // with tensor or pipeline parallelism: GradientLayout
  int64_t checkpoint_every = 0;               // 0: only at the end
  int64_t state_digest_every = 0;             // 0: only at checkpoints and at the end
  ScalingOptions scaling = {};                // with adaptive scaling, its goal and not `steps` ends the run
  AuditOptions audit = {};
  bool groups = false;    // this worker has a GPU that can be in a group (comm/gpu_group.h)
  int report_every = 32;  // the number of steps whose facts the leader reports at once
  std::function<void(int64_t step, int bucket, std::vector<Tensor>& sums)> spoil = {};  // StepReduction::Options
};

class Member {
 public:
  explicit Member(const MemberOptions& options);
  Member(const Member&) = delete;  // its parts refer to each other
  Member& operator=(const Member&) = delete;

  // --- Its parts.
  const MemberPosition& position() const { return position_; }
  const ScalingProgress& scaling() const { return scaling_; }
  const GradientLayout& layout() const { return layout_; }
  CatchingUp& catching_up() { return catching_up_; }
  StepGradients& gradients() { return gradients_; }
  StepReduction& reduction() { return reduction_; }
  StepAudit& audit() { return audit_; }
  MemberGroups& groups() { return groups_; }
  StateTransfers& transfers() { return transfers_; }
  OptimizerShards& shards() { return shards_; }
  ValueExchange& values() { return values_; }
  const ModelReplica& replica() const { return replica_; }
  ReplicaExchange& replica_exchange() { return replica_exchange_; }
  StageExchange& stage_exchange() { return stage_exchange_; }
  ParameterFetch& parameter_fetch() { return parameter_fetch_; }
  MemberOutbox& outbox() { return outbox_; }

  // --- The loop calls next(), does what it says, and then calls advance().
  enum class Next {
    wait,    // for a message
    layout,  // learn_layout() with a rank gradient that is discarded: a newcomer warms up before others wait for it
    load,    // catching_up().load() into the network, then loaded()
    // Compute gradients().todo(), add each, gradients().contribute(), reduce() until complete, update by
    // reduction().take_reduced(), advance(). With ZeRO: before the update, make the change that shards().take_change()
    // names; after it, take part in values() until they are complete.
    gradients,
    replay,  // rebuild the state from checkpoint audit().begin_replay(); the rebuilt state replaces the old one
    // Like `gradients` without rank gradients and contribution: another member sends the result. Requires the layout.
    copy,
    done,  // outcome() says why
  };
  Next next();
  void learn_layout(const RankGradient& gradient);  // accepts any rank gradient that has samples
  void loaded(const StateLoad& load);  // the state is in the network; ignored if another one has begun to arrive
  enum class Progress { waiting, complete, abandoned };
  Progress reduce();  // reduces buckets that are ready, on the caller's CPU stream
  // A text that tells people what the step waits for; empty if nothing is awaited.
  std::string missing() const;
  // Records that the update is made. `facts` are for the coordinator; advance() sets their step.
  void advance(StepFacts facts);

  // --- The outside.
  void receive(const Message& message);
  void lost(PeerId peer, const std::string& reason);
  void introduce(PeerId coordinator, const WorkerInfo& about);  // says hello, also to a later coordinator
  void heartbeat(messages::Alive alive);
  void drain();  // asks to leave
  // The run ends because of this worker. Facts of earlier steps go to the coordinator first.
  void failed(const std::string& reason, int exit_code);
  void give_up(const std::string& reason);  // no coordinator can be reached any more
  struct Outcome {
    std::string what;  // "finished", "stopped", "left", "refused", "expelled", "alone"
    std::string reason;
    bool again = false;  // it may come back as a new worker
  };
  const std::optional<Outcome>& outcome() const { return outcome_; }

 private:
  void obey(const Message& message);
  void welcome(int64_t number, const messages::Welcome& welcome);
  void start(const messages::Start& start);
  void propose(Generation generation);
  void enter(Generation generation, int64_t first_step);
  void enter_agreed();
  void use_stage();
  void fenced_by(int64_t fence);
  void finish_reduction();
  void set_made(const ScalingState& state);
  void receive_state(int64_t step, const messages::StatePieces& pieces);
  void forget_state();
  void return_to_start(int64_t number);
  void report_ready();

  MemberOptions options_;
  MemberPosition position_;
  MemberOutbox outbox_;
  FactsOutbox facts_;
  ScalingProgress scaling_;
  GradientLayout layout_;
  ModelReplica replica_;
  ReplicaExchange replica_exchange_;
  StageExchange stage_exchange_;
  OptimizerShards shards_;
  ParameterFetch parameter_fetch_;
  CatchingUp catching_up_;
  StepAudit audit_;
  MemberGroups groups_;
  ExchangeInbox inbox_;
  StepReduction reduction_;
  StepGradients gradients_;
  StateTransfers transfers_;
  ValueExchange values_;
  MissedResults missed_;

  bool waiting_for_release_ = false, draining_ = false;
  int64_t agreed_ = 0;  // the newest generation that every member held, according to a trailer
  std::optional<Outcome> outcome_;
};

}  // namespace elinvar
