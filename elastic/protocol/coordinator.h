#pragma once
// The coordinator's side of the protocol (PROTOCOL.md), without threads, clock, network and disk: it is told what
// has come and what time it is, and answers by messages and through its World. The coordinator's process and the
// simulator run this same code. It is on the path of no step.
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "elastic/protocol/hang.h"
#include "elastic/protocol/member.h"
#include "elastic/protocol/plan.h"
#include "elastic/protocol/recovery.h"
#include "elastic/protocol/roster.h"
#include "elastic/step/scaling.h"

namespace elinvar {

struct CoordinatorOptions {
  uint64_t run = 0;
  int64_t term = 1;           // its number (elastic/run/term.h),
  std::string endpoint = {};  // and where workers find it
  int64_t steps = 0;          // not counted with adaptive scaling, whose goal ends the run
  int initial_workers = 1;    // the first generation waits for so many
  int min_workers = 1;        // with fewer than these the job holds
  PlanLimits plan = {};
  ScalingOptions scaling = {};
  Seconds heartbeat_timeout = 3 * kHeartbeat;  // then a silent worker counts as gone
  HangLimits hang = {};                        // and one that hangs, although it is not silent
  Seconds stuck = 3;                           // how long all may wait while nothing comes, at first (Patience),
  Seconds repeat = 1;                          // and how long for the answer to a fence
  Seconds start_timeout = 30;                  // then the first generation begins with fewer, if there are min_workers
  Seconds gather_timeout = 3;                  // how long a new coordinator waits for the members of an old one
  Seconds reassign_every = 10;                 // the least time between two plans that differ only in the shares
  Seconds hold = 600;                          // how long it waits where everyone who has the state is silent
  int save_attempts = 3;                       // to write the last checkpoint, without which the run does not end well,
  Seconds save_again = 2;                      // so long after one that failed,
  Seconds save_timeout = 600;                  // and how long one may take
};

// What the coordinator does besides sending messages.
class CoordinatorWorld {
 public:
  virtual ~CoordinatorWorld() = default;
  // Creates the record, durably and exclusively; false: there is one already.
  virtual bool create(const Generation& generation) = 0;
  // Whether there is a coordinator of a later term.
  virtual bool superseded() = 0;
  // Writes down what is known of steps; returns the last step that is on file without a gap, or nothing if there is a
  // coordinator of a later term, which may not have seen what was written.
  virtual std::optional<int64_t> facts(const std::vector<StepFacts>& steps) = 0;
  // The members of the newest generation are all gone: the step whose state the run goes on with.
  virtual int64_t restart() = 0;
  // The step of the newest checkpoint, at most `most`; 0: none but the state that the run began with.
  virtual int64_t newest_checkpoint(int64_t /*most*/) { return 0; }
  // With adaptive scaling, what the state that the run goes on with and the ledger say. A new history begins: what was
  // told of steps after the ledger's end is no more true.
  struct Recorded {
    ScalingState scaling_state = {};                      // in that state
    std::vector<GenerationScaling::Change> changes = {};  // of the batch, at steps in the ledger,
    int64_t steps = 0;                                    // which ends here
  };
  virtual Recorded begin_history() { return {}; }
  virtual void event(const std::string& name, const nlohmann::json& fields) = 0;
  // The worker is of the job no more, but may not be able to find that out by itself.
  virtual void evict(PeerId peer) = 0;
  // Why a worker that introduces itself so cannot take part; "": it can.
  virtual std::string refuse(const messages::Hello& hello) = 0;
};

class Coordinator {
 public:
  // The records that a new coordinator finds: the newest, and the one that it follows.
  struct Records {
    std::optional<Generation> newest, before;
    bool members_alive = false;  // they may still be at work: it tells them where it is
  };
  // A run that begins, or goes on with the state after `first_step` updates.
  Coordinator(const CoordinatorOptions& options, CoordinatorWorld& world, int64_t first_step, const Records& records,
              Seconds now);

  void receive(const Message& message, Seconds now);
  void lost(PeerId peer, const std::string& reason, Seconds now);  // its process or its connection is gone
  // What comes next was waited for until now: from here on nobody is heard until the tick.
  void woke(Seconds now);
  void tick(Seconds now);                       // after whatever came, and by this time if nothing does:
  Seconds tick_by() const { return tick_by_; }  // at most a second after the last one
  void checkpoint_committed(int64_t step, Seconds now);
  void checkpoint_failed(int64_t step, const std::string& reason, Seconds now);
  void superseded();                     // there is a coordinator of a later term
  void fail(const std::string& reason);  // the process cannot go on: all workers are told to end

  // False if what the message tells of a step or a state belongs to what was before the run went on from a checkpoint:
  // with adaptive scaling it may have become different since.
  bool of_this_history(const Message& message) const;

  // What a person asks for; an error text or "".
  std::string drain(int id, Seconds now);
  void ask_checkpoint(Seconds now);
  void ask_stop(const std::string& reason, Seconds now);
  nlohmann::json status(Seconds now) const;

  std::vector<Action> take_actions();

  enum class Phase { gathering, starting, running, fencing, holding, ended };
  Phase phase() const { return phase_; }
  struct Ending {
    std::string what;  // "finished", "stopped", "failed", "superseded"
    std::string reason;
  };
  const std::optional<Ending>& ending() const { return ending_; }
  const std::optional<Generation>& generation() const { return current_; }
  int64_t completed() const;
  size_t workers() const { return workers_.size(); }
  bool knows(PeerId peer) const { return workers_.contains(peer); }
  bool trains(PeerId peer) const;  // in a generation, or in the next

 private:
  void hello(const Message& message, const messages::Hello& hello, Seconds now);
  void from_stranger(const Message& message);
  void heartbeat(Worker& worker, const messages::Alive& alive);
  void ready(Worker& worker, Seconds now);
  void ready(Worker& worker, const Message& message, const messages::Ready& ready, Seconds now);
  void facts(const Message& message, const TellsFacts& told, Seconds now);
  void progress(Worker& worker, const Message& message, Seconds now);
  void missed(const messages::Missed& missed);
  void drain(Worker& worker, Seconds now);
  void gone(PeerId peer, const std::string& reason, Seconds now);
  void begin_generation_of_starters(Seconds now);
  void fence(const std::string& reason, Seconds now);
  void fenced(Worker& worker, const Message& message, const messages::Fenced& answer, Seconds now);
  void conclude_fence(Seconds now);
  void evict(PeerId peer, const std::string& reason, Seconds now, bool guilty = false);
  void audit(const Message& message, const Evidence& evidence, Seconds now);
  void group_used(const Message& message, const messages::GroupUsed& used);
  void group_missing(const Worker& worker, const messages::GroupMissing& missing);
  void group_failed(const Worker& worker, const Message& message, const messages::GroupFailed& failed, Seconds now);
  void no_group(const Worker& worker, int64_t of, const std::string& reason);
  std::string why_no_group(const std::vector<PeerId>& peers) const;
  std::optional<int64_t> group_to_keep(const Generation& next) const;
  std::optional<int64_t> group_to_recover(const Generation& next) const;
  nlohmann::json data_plane() const;
  void prepare_trial(Recovery& recovery);
  nlohmann::json machine_of(int id) const;
  void gather(Seconds now);
  void call(PeerId peer, const std::string& endpoint);
  bool write_facts(const std::vector<StepFacts>& steps);
  void learn_speeds(const StepFacts& facts);
  void measure(const StepFacts& facts);
  std::optional<Scaled> other_batch(size_t workers, bool larger) const;
  bool adaptive() const { return options_.scaling.batch > 0; }
  void begin_history(int64_t number);
  void welcome(Worker& worker);
  void send_state(Worker& worker);
  void stop_sending(PeerId peer);
  void send_state_to_joiners();
  void restart_learners();
  void dismiss(PeerId peer);
  bool dismissible(const Worker& worker) const;
  void maybe_propose(Seconds now);
  void switched(Seconds now);
  void release_leavers();
  void end(const std::string& what, const std::string& reason);
  void send(PeerId peer, Payload payload, int64_t generation = 0, int64_t step = 0);
  Generation next_generation(const std::vector<PeerId>& peers, const std::string& reason,
                             const std::vector<PeerId>& joining = {});
  bool create(const Generation& generation, Seconds now);
  void decide(Seconds now);
  Seconds next_tick(Seconds now) const;
  bool whole() const;
  std::optional<int64_t> last_checkpoint() const;
  void save_again(Seconds now);
  bool concerned(const Worker& worker) const;
  void listen_for_silence(Seconds now);
  void find_what_is_lost(Seconds now);
  static const char* name_of(Phase phase);

  CoordinatorOptions options_;
  CoordinatorWorld& world_;
  int64_t first_step_;
  Phase phase_ = Phase::starting;
  int64_t number_ = 0;  // the newest generation or fence
  int next_id_ = 1;
  std::optional<Generation> current_, proposal_;
  Roster workers_;
  std::map<PeerId, std::string> gone_;  // and where they were
  std::set<PeerId> unwanted_;           // found guilty by an audit, or asked to leave: they shall not come back
  std::string fence_reason_;
  Seconds fence_said_ = 0;
  Patience patience_;
  struct Doubt {
    int64_t step;
    Trial trial;
  };
  std::optional<Doubt> doubt_;  // what the next generation is to be a trial of,
  int64_t tried_step_ = -1;     // what was last,
  int tries_ = 0;               // and how often
  int64_t agreed_state_ = 0;    // updates in the last state that the members were seen to agree on
  int64_t group_used_ = 0;      // the newest generation whose group of GPUs has added up a step,
  std::string group_trouble_;   // why there was none in the newest one that was to have one,
  bool group_failed_ = false;   // for which the present fence is, unless a death turns out to be the reason,
  int group_failures_ = 0;      // and how often one has failed in the middle of a step
  std::set<PeerId> fence_targets_;
  Seconds gather_until_ = 0, start_until_ = 0, changed_ = 0;
  Seconds tick_by_ = 0, deaf_from_ = 0;
  Wishes wishes_;
  bool final_ = false;  // the facts of the last reduction have come
  int64_t final_checkpoint_ = -1;
  int save_failures_ = 0;
  std::optional<Seconds> save_again_at_, last_saved_from_;
  int64_t on_file_ = -1;  // the last step whose facts are written down,
  int64_t heard_ = -1;    // the last of which a member has told: of a run that is resumed more is on file;
  int64_t told_ = -1;     // and the last of which the members were told that they are,
  Seconds told_at_ = 0;   // then
  Seconds no_hang_until_ = 0;
  std::optional<Seconds> deserted_;  // since then everyone who has the state is silent
  int base_workers_ = 0;             // adaptive scaling: of the first generation,
  int64_t history_ = 0;              // the first one since the last restart from a checkpoint,
  int64_t batch_ = 0;                // the newest batch that is known here,
  Profile profile_;                  // and what steps take
  CoordinatorWorld::Recorded recorded_;
  std::optional<Ending> ending_;
  std::vector<Action> actions_;
};

}  // namespace elinvar
