#pragma once
// The coordinator's side of the protocol (PROTOCOL.md), without threads, clock, network and disk. Its caller passes in
// messages and the time; it answers by messages and through its CoordinatorWorld. The coordinator's process and the
// simulator run this same code. No step waits for it.
//
// Parts with their own state make the decisions; they share JobState. This class passes each event to the part
// concerned and carries out the consequences for the other parts.
#include <string>
#include <vector>

#include "elastic/protocol/admission.h"
#include "elastic/protocol/audit_trials.h"
#include "elastic/protocol/batch_scaling.h"
#include "elastic/protocol/facts_on_file.h"
#include "elastic/protocol/fencing.h"
#include "elastic/protocol/generation_planner.h"
#include "elastic/protocol/group_planner.h"
#include "elastic/protocol/job_state.h"
#include "elastic/protocol/last_checkpoint.h"
#include "elastic/protocol/liveness.h"
#include "elastic/protocol/transfer_scheduler.h"

namespace elinvar {

class Coordinator {
 public:
  using Records = CoordinatorRecords;
  using Phase = JobState::Phase;
  using Ending = JobState::Ending;

  // Begins a run, or continues one with the state after `first_step` updates.
  Coordinator(const CoordinatorOptions& options, CoordinatorWorld& world, int64_t first_step, const Records& records,
              Seconds now);

  // Throws UsageError if a number in the message is impossible in this job; nothing has changed then.
  void receive(const Message& message, Seconds now);
  void lost(PeerId peer, const std::string& reason, Seconds now);  // the peer's process or connection is gone
  // Call when the wait for the next event ends. Until the tick, time does not count as silence of a worker.
  void wait_ended(Seconds now);
  // Call after every event, and by tick_by() if there is none: at most a second after the last tick.
  void tick(Seconds now);
  Seconds tick_by() const { return liveness_.look_by(); }
  // Reports that the checkpoint of this step is committed or, if `failure` is not empty, why it cannot be.
  void checkpoint(int64_t step, const std::string& failure, Seconds now);
  void superseded() { job_.superseded(); }                     // a coordinator of a later term exists
  void fail(const std::string& reason) { job_.fail(reason); }  // the process cannot go on: tells all workers to end
  std::vector<Action> take_actions();

  // Returns false if what the message says about a step or a state is older than the checkpoint from which the run
  // continued: with adaptive scaling, steps and states may differ since then.
  bool of_this_history(const Message& message) const { return scaling_.of_this_history(message); }

  // Requests by people. Those that return a text return an error, or "".
  std::string drain(int id, Seconds now);
  void ask_to_leave(PeerId worker, Seconds now);  // also one that is no member yet; nothing happens if it is gone
  std::string arrange(const Arrangement& arrangement, Seconds now);  // also ends automatic choices
  std::string arrange_automatically(Seconds now);
  void ask_checkpoint(Seconds now);
  void ask_stop(const std::string& reason, Seconds now);
  nlohmann::json status(Seconds now) const;

  const JobState& job() const { return job_; }

 private:
  // Handlers of workers' messages.
  void check_possible(const Message& message) const;
  void hello(const Message& message, const messages::Hello& hello, Seconds now);
  void handle(Worker& worker, const Message& message, Seconds now);
  void handle_stranger(const Message& message);
  void facts(const Message& message, const FactsBatch& told, Seconds now);
  void progress(Worker& worker, const Message& message, Seconds now);
  void ready(Worker& worker, Seconds now);
  void drain(Worker& worker, Seconds now);
  void audit(const Message& message, const Evidence& evidence, Seconds now);

  // Consequences of decisions.
  void dismiss(PeerId peer);
  void evict(PeerId peer, const std::string& reason, Seconds now, bool guilty = false);
  void remove_worker(PeerId peer, const std::string& reason, Seconds now);
  void fence(const std::string& reason, Seconds now);
  void start(Seconds now);
  void fence_if(const FenceReason& reason, Seconds now);
  void conclude_fence(Seconds now);
  void propose(Seconds now);
  void switched(Seconds now);
  void serve_learners();
  void release_leavers();
  void turn_away_misfits();

  // Decisions that depend on time alone.
  void decide(Seconds now);
  void find_what_is_lost(Seconds now);
  void gather(Seconds now);
  void begin_again(int starters, bool others_come, Seconds now);
  void restore_checkpoint(Seconds now);

  JobState job_;
  BatchScaling scaling_;
  GroupPlanner groups_;
  FactsOnFile facts_;
  LastCheckpoint last_checkpoint_;
  Fencing fencing_;
  AuditTrials trials_;
  Admission admission_;
  TransferScheduler transfers_;
  GenerationPlanner planner_;
  Liveness liveness_;
};

}  // namespace elinvar
