#pragma once
// State transfers to learners (PROTOCOL.md, "Joining"): which members send a learner the state, of which step, in which
// attempt, and when all of that begins anew.
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

  // A worker has introduced itself, or restores another state: it is welcomed once more.
  void introduced(PeerId peer);
  // Welcomes all that are joining, and has the state sent to those for which it is time: once they are warm, so that
  // the others have no work with a worker that touches all of its memory first, or at once where nobody can go on
  // without it. Returns the joining workers that were asked to leave, and can.
  std::vector<PeerId> serve();

  // Whether the learner has caught up in the attempt that counts.
  bool caught_up(const Worker& worker, int64_t attempt) const;
  // Each of these makes transfers begin anew with the next serve().
  void missed(PeerId learner);  // a member was past the step to send the state of
  void restart();               // a member that sends may be gone
  void restart_from_leavers();  // learners whose results came from a worker that is no member now
  [[nodiscard]] bool restart_stuck(Seconds patience);  // learners that wait for a lost message; false: there are none

  void stop(PeerId learner);    // members send it no more
  void forget(PeerId learner);  // it is no longer part of the job

 private:
  struct Transfer {
    bool welcomed = false;  // the learner was told that others will give it the state
    int attempts = 0;
    int64_t attempt = 0;   // the number of the last
    int64_t boundary = 0;  // the state is that after this step
    PeerId copier = 0;     // passes the results on
  };
  void begin(Worker& learner, Transfer& transfer);

  JobState& job_;
  const FactsOnFile& facts_;
  const Fencing& fencing_;
  std::map<PeerId, Transfer> transfers_;
};

}  // namespace elinvar
