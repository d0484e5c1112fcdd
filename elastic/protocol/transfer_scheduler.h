#pragma once
// Schedules state transfers to learners (PROTOCOL.md, "Joining"): which members send the state, after which step, in
// which attempt, and when a transfer begins again.
#include <map>
#include <vector>

#include "elastic/protocol/facts_on_file.h"
#include "elastic/protocol/fencing.h"
#include "elastic/protocol/job_state.h"

namespace elinvar {

class TransferScheduler {
 public:
  TransferScheduler(JobState& job, const FactsOnFile& facts, const Fencing& fencing)
      : job_(job), facts_(facts), fencing_(fencing) {}

  // A worker has introduced itself, or restores another state: welcomes it again.
  void introduced(PeerId peer);
  // Welcomes all joining workers and starts the transfers that are due. A transfer is due once the learner is warm,
  // because until then it is busy touching all of its memory, or at once if the job cannot go on without it. Returns
  // the joining workers that were asked to leave and can do so.
  std::vector<PeerId> serve();

  // Returns whether the learner has caught up in the attempt that counts.
  bool caught_up(const Worker& worker, int64_t attempt) const;
  // Each of these makes transfers begin again with the next serve().
  void missed(PeerId learner);  // a member had passed the step whose state it should send
  void restart();               // a sending member may be gone
  void restart_from_leavers();  // for learners whose results came from a worker that is no longer a member
  [[nodiscard]] bool restart_stuck(
      Seconds patience);  // for learners that wait for a lost message; false if there are none

  void stop(PeerId learner);    // members stop sending to it
  void forget(PeerId learner);  // it is no longer part of the job

 private:
  struct Transfer {
    int attempts = 0;
    int64_t attempt = 0;   // number of the newest attempt
    int64_t boundary = 0;  // the step after which the state is copied
    PeerId copier = 0;     // passes on the results
  };
  void begin(Worker& learner, Transfer& transfer);

  JobState& job_;
  const FactsOnFile& facts_;
  const Fencing& fencing_;
  std::map<PeerId, Transfer> transfers_;
};

}  // namespace elinvar
