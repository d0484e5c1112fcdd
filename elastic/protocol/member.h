#pragma once
// A worker's side of the protocol (PROTOCOL.md), without threads, clock and network: it is told what the loop does and
// which messages have come, and says what is to be sent and done. The worker's process (elastic/session/session.h) and
// the simulator run this same code.
//
// A member's life: it introduces itself (hello); it is a *learner* that gets the state of some step and then the
// reduced gradients of every step after it; in the generation that first counts it as a member it becomes *active*,
// computes leaves and takes part in every reduction; it leaves when a generation is without it, or when the run ends.
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "elastic/audit/audit.h"
#include "elastic/protocol/catching_up.h"
#include "elastic/protocol/exchange.h"
#include "elastic/protocol/facts_outbox.h"
#include "elastic/protocol/message.h"
#include "elastic/protocol/step_leaves.h"
#include "elastic/step/generation.h"

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
  // Fault injection: damages what this member adds up in `step` (Exchange::spoil).
  std::function<void(int64_t step, int bucket, std::vector<Tensor>& sums)> spoil = {};
};

// What is to be done for a message: send it, or change a connection first.
struct Action {
  enum class What { send, connect, disconnect };
  What what = What::send;
  PeerId peer = 0;
  std::string endpoint = {};
  Message message = {};
};

// A part of the state, as it is at the boundary after `step` updates, to be copied before the next update: for a
// checkpoint, or for a learner.
struct StatePart {
  int64_t step = 0;
  int part = 0, parts = 1;
  PeerId to = 0;                      // 0: a checkpoint
  int64_t attempt = 0;                // a learner is fed anew where a feeder is gone
  std::vector<ToldFacts> facts = {};  // of earlier steps, not confirmed yet: go with the state
  Pace pace = {};                     // with adaptive scaling: of that state,
  std::optional<int64_t> end = {};    // and the last step, where it is known
  bool sworn = false;                 // a digest of the whole state goes with it: no step need follow
  bool gently = false;                // steps go on meanwhile, and nobody waits for the learner
};

class Member {
 public:
  explicit Member(const MemberOptions& options);

  // --- The loop: next() until it says what to do, then that, then advance().
  enum class Next {
    wait,    // for a message
    layout,  // learn_layout() of a leaf that counts for nothing: so a newcomer warms up before others have work with it
    load,    // take_load() into the network, then loaded()
    leaves,  // compute todo(), add() each, contribute(), reduce() until complete, update, advance()
    replay,  // begin_replay(), and make the state anew from there
    copy,    // the same without leaves and contribution: the result comes from somebody who has it. Needs the layout
    done,    // outcome() says why
  };
  Next next();
  int64_t step() const { return step_; }
  bool last() const { return completed_ == steps_; }  // then leaves are facts alone, and there is no update
  // How many steps the run has; with adaptive scaling this is known once all but the last reduction are complete.
  std::optional<int64_t> steps() const { return steps_ == kUnknown ? std::nullopt : std::optional(steps_); }
  Pace pace() const { return pace_.value_or(made_); }  // of the step that todo() is of
  Pace made() const { return made_; }                  // of the state: that of the last step, with its samples
  std::vector<int> todo() const;  // virtual ranks of mine without a leaf yet, ascending; then one to be audited
  bool digest_due() const;        // of the state now: it goes to contribute()
  // Whether this leaf of the step is one that an audit compares: then its digest is wanted (Leaf::digest).
  bool audits_leaf(int64_t step, int vrank) const;
  // The leaf counts: it was dealt to this member. One that is only audited does not.
  bool owns(int vrank) const;
  bool knows_layout() const { return buckets_.has_value(); }
  void learn_layout(const Leaf& leaf);  // of any leaf that has samples

  void add(int64_t step, int vrank, Leaf leaf, double seconds);  // one that is too late is dropped
  // The last leaf of a step may come gradient by gradient, so that buckets leave while the rest of its backward pass
  // runs. opens(): whether this one may; open(): its targets are counted; put(): a gradient is there; work(): adds up a
  // bucket if one can be, on the caller's CPU stream. Then add() it like any other, with the same tensors. Those of a
  // GPU are put by who uses its side queue for gradients (tensor/side_queue.h), which the stream has joined when the
  // leaf is added. One that `passes` is there until then alone: what is kept of it is a copy, of all that came since
  // the last whole bucket by one call. has_open(): whether a leaf is folded as it comes (after a fence it may not be).
  bool opens(int vrank) const;
  void open(int64_t step, int vrank, int64_t count, const std::vector<Tensor>& terms);
  bool has_open() const { return leaves_.is_open(); }
  void put(int gradient, Tensor value, bool passes = false);
  bool work();
  void contribute(const std::optional<Digest>& state, const StateDigests& parts = {});
  enum class Progress { waiting, complete, abandoned };
  Progress reduce();  // adds up what can be, on the caller's CPU stream
  Reduced take_reduced();
  const std::string& contradiction() const { return contradiction_; }
  // From the checkpoint of step `from` (0: as a new network is) the updates up to `step` are made again, by this worker
  // alone; the result stays its state, whether it is the same or not.
  struct Replay {
    int64_t from = 0, step = 0;
  };
  Replay begin_replay();
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

  // --- Groups of GPUs (PROTOCOL.md, "Groups of GPUs"). Requests are to be carried out beside all else, and answered by
  // one of the three; groups of generations before oldest_group() are over.
  std::vector<GroupRequest> take_group_requests();
  int64_t oldest_group() const { return promised_; }
  // But for the group of this generation, if not 0: the next one may be made from it.
  int64_t spare_group() const;
  void group_named(int64_t generation, const NcclId& id);
  void group_formed(int64_t generation, std::shared_ptr<GpuGroup> group);
  void group_not_formed(int64_t generation, const std::string& reason);
  void group_not_shrunk(int64_t generation);
  // Whether the group of this generation adds up this step.
  bool reduces_in_group() const;
  // Whether leaves of this step are added up where they are computed, by the group or by this member alone: then they
  // are to lie on that device, else on the CPU.
  bool keeps_leaves() const;
  // The device has no room for the next leaf beside those that it has: a member alone takes them to the CPU, and does
  // so from now on. False: there is nothing that could go.
  bool let_leaves_go();
  // Whether the reduction waits for the group, which nobody tells of: reduce() is to be called again and again.
  bool transferring() const { return exchange_ && exchange_->transferring(); }
  int64_t group_progress() const { return exchange_ ? exchange_->progress() : 0; }  // grows with what it has done
  void group_stalled(const std::string& reason);                                    // and it has lasted too long

  std::vector<Action> take_actions();
  std::vector<StatePart> take_parts();

  struct Outcome {
    std::string what;  // "finished", "stopped", "left", "refused", "expelled", "alone"
    std::string reason;
    bool again = false;  // it may come back, as a new worker
  };
  const std::optional<Outcome>& outcome() const { return outcome_; }
  PeerId coordinator() const { return coordinator_; }  // the only one that it obeys: the last it was introduced to
  bool active() const { return generation_.has_value() && me_ >= 0; }
  int64_t generation() const { return generation_ ? generation_->number : 0; }
  int64_t completed() const { return completed_; }
  std::string missing() const;  // of a reduction, for people; "" if it waits for nothing of one
  bool fenced() const { return promised_ > generation(); }
  int id() const;
  int index() const { return me_; }  // among the members of its generation; -1: it is none
  int members() const { return generation_ ? static_cast<int>(generation_->members.size()) : 0; }
  size_t early() const { return early_.size(); }

 private:
  struct Feeding {
    int64_t step;  // of the state that the learner gets
    messages::Feed feed;
  };
  static constexpr int64_t kCopy = 0;  // the generation of results that go to somebody who only listens
  static constexpr int64_t kUnknown = int64_t{1} << 60;

  void send(PeerId peer, Payload payload);
  void report(Payload payload);  // to the coordinator
  Exchange::Send sender();
  void connect_members(const Generation& generation);
  void welcome(const messages::Welcome& welcome);
  void start(const messages::Start& start);
  void propose(Generation generation);
  void enter(Generation generation, int64_t first_step);
  void enter_agreed();
  void feed(int64_t step, const messages::Feed& feed);
  void obey(const Message& message);
  void receive_data(const Message& message);
  void deliver_early();
  void listen();
  void give_last(const Message& message, const messages::Fetch& fetch);
  void give_copy(PeerId learner, int64_t step, int64_t attempt, const std::vector<Tensor>& values,
                 const messages::Trailer& trailer);
  void report(std::vector<TellsFacts> facts);
  void report_facts();  // all that are not confirmed
  void tell_facts();    // those that were not told yet, if this member leads
  bool scheduled() const;
  bool asked_to_save() const;
  void save();
  void give_part(const Feeding& feeding);
  void receive_state(int64_t step, const messages::StatePieces& pieces);
  void tell_ready();
  void fenced_by(int64_t fence);
  void finish_reduction();
  bool adaptive() const { return options_.scaling.batch > 0; }
  void set_made(const Pace& pace);
  void settle_pace();
  const Buckets* buckets_now() const;
  void drop_leaves();
  bool audits() const;
  AuditRoles audit_roles() const;
  bool on_trial() const;
  std::optional<int> leaf_to_audit() const;
  void testify(int vrank, const Leaf& leaf);
  std::optional<AuditClaims> claims_to_tell() const;
  void audit_exchange();
  bool passes_audit();
  void begin_exchange();
  void ask_for_group(const Generation& generation);
  void inherit_group(const Generation& before, bool planned);
  void form_anew(int64_t generation);
  void called_anew();
  int64_t group_name(int64_t generation) const { return 2 * generation + (anew_ == generation); }
  void group_called(const Message& message, const messages::GroupName& name);
  void drop_groups();

  MemberOptions options_;
  uint64_t run_ = 0;
  PeerId coordinator_ = 0;
  std::optional<Generation> generation_;
  std::map<int64_t, Generation> proposed_;  // later ones: a second may come before this member knows of the first
  int me_ = -1;
  CatchingUp catching_up_;
  bool loaded_ = false, ready_told_ = false, waiting_for_release_ = false, draining_ = false;
  int64_t promised_ = 0;   // no message of a generation below counts any more
  int64_t agreed_ = 0;     // the newest generation that a trailer showed everyone to hold
  int64_t completed_ = 0;  // reductions that are complete,
  int64_t step_ = 0;       // and updates made: one less between the two
  int64_t steps_;          // of the whole run
  Pace made_;
  std::optional<Pace> pace_;  // of step completed_, once that is certain
  PeerId ahead_ = 0;          // who has the result that I lack, after a fence; 0: asked already

  std::optional<Buckets> buckets_;
  std::optional<Buckets> whole_buckets_;  // for groups of GPUs: no tensor is cut
  int gradients_ = 0;
  StepLeaves leaves_;  // of step completed_

  std::optional<Exchange> exchange_;  // of (generation_, completed_), from open() or contribute() on
  AuditClaims claims_;                // of step completed_, in whatever generations,
  int64_t testified_ = 0;             // the last of which this was: of a leaf,
  int64_t replayed_ = 0;              // and with a replay
  std::optional<Evidence> evidence_;  // the audit of this exchange has found something: it is repeated until a fence
  std::map<int64_t, std::shared_ptr<GpuGroup>> groups_;     // that have formed, by generation,
  std::map<int64_t, std::pair<PeerId, NcclId>> group_ids_;  // what they are called, and who says so,
  std::set<int64_t> asked_groups_;                          // and those that were asked for;
  int64_t anew_ = 0;                          // the generation whose group could not be made from another,
  std::string group_made_ = "new";            // and how that of this generation was
  bool crowded_ = false;                      // its device has no room for leaves
  int64_t group_agreed_ = 0;                  // the name of the one that all are in
  int64_t group_told_ = 0;                    // the coordinator knows that this one is used
  std::optional<std::string> group_trouble_;  // repeated until another generation
  std::vector<GroupRequest> group_requests_;
  Reduced reduced_;
  std::vector<Message> early_;       // for an exchange that is not there yet
  std::vector<Tensor> last_values_;  // of step completed_ - 1, for those who lack it
  std::optional<messages::Trailer> last_trailer_;
  std::string contradiction_;
  std::map<PeerId, Feeding> feeds_;
  FactsOutbox facts_;

  std::optional<Outcome> outcome_;
  std::vector<Action> actions_;
  std::vector<StatePart> parts_;
};

}  // namespace elinvar
