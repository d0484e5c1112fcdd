#pragma once
// The coordinator's side of the protocol (PROTOCOL.md), without threads, clock, network and disk: it is told what
// has come and what time it is, and answers by messages and through its World. The coordinator's process and the
// simulator run this same code. It is on the path of no step.
//
// The decisions are made by parts with a state of their own, which share JobState. This class passes what comes to the
// part that it concerns, and carries out what follows for the others.
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

  // A run that begins, or goes on with the state after `first_step` updates.
  Coordinator(const CoordinatorOptions& options, CoordinatorWorld& world, int64_t first_step, const Records& records,
              Seconds now);

  void receive(const Message& message, Seconds now);
  void lost(PeerId peer, const std::string& reason, Seconds now);  // its process or its connection is gone
  // What comes next was waited for until now: from here on nobody is heard until the tick.
  void woke(Seconds now);
  // After whatever came, and by tick_by(), at most a second after the last one, if nothing does.
  void tick(Seconds now);
  Seconds tick_by() const { return liveness_.look_by(); }
  // The checkpoint of this step is committed; or why it cannot be, if `failure` is not empty.
  void checkpoint(int64_t step, const std::string& failure, Seconds now);
  void superseded() { job_.superseded(); }                     // there is a coordinator of a later term
  void fail(const std::string& reason) { job_.fail(reason); }  // the process cannot go on: all workers are told to end
  std::vector<Action> take_actions();

  // False if what the message tells of a step or a state belongs to what was before the run went on from a checkpoint:
  // with adaptive scaling it may have become different since.
  bool of_this_history(const Message& message) const { return scaling_.of_this_history(message); }

  // What a person asks for; an error text or "".
  std::string drain(int id, Seconds now);
  void ask_checkpoint(Seconds now);
  void ask_stop(const std::string& reason, Seconds now);
  nlohmann::json status(Seconds now) const;

  const JobState& job() const { return job_; }

 private:
  // What a worker tells.
  void hello(const Message& message, const messages::Hello& hello, Seconds now);
  void told_by(Worker& worker, const Message& message, Seconds now);
  void told_by_stranger(const Message& message);
  void facts(const Message& message, const TellsFacts& told, Seconds now);
  void progress(Worker& worker, const Message& message, Seconds now);
  void ready(Worker& worker, Seconds now);
  void drain(Worker& worker, Seconds now);
  void audit(const Message& message, const Evidence& evidence, Seconds now);

  // What a decision leads to.
  void dismiss(PeerId peer);
  void evict(PeerId peer, const std::string& reason, Seconds now, bool guilty = false);
  void gone(PeerId peer, const std::string& reason, Seconds now);
  void fence(const std::string& reason, Seconds now);
  void fence_if(const FenceReason& reason, Seconds now);
  void conclude_fence(Seconds now);
  void propose(Seconds now);
  void switched(Seconds now);
  void serve_learners();
  void release_leavers();

  // What time alone calls for.
  void decide(Seconds now);
  void find_what_is_lost(Seconds now);
  void gather(Seconds now);

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
