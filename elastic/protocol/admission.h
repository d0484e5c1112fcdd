#pragma once
// Who is part of the job: workers that introduce themselves are taken into the roster or refused, and those that leave,
// are lost or are evicted are taken out of it, and remembered (PROTOCOL.md, "Joining", "Death").
#include <map>
#include <set>
#include <string>

#include "elastic/protocol/job_state.h"

namespace elinvar {

class Admission {
 public:
  // Members of an old generation are waited for from `now` on, where a new coordinator gathers them.
  Admission(JobState& job, Seconds now) : job_(job), gather_until_(now + job.options.gather_timeout) {}

  enum class Arrival {
    refused,
    known,      // nothing changes
    member,     // of the current generation, or of the one before
    caught_up,  // a learner that has been sent the state, as it says
    starter,    // has the state that the run begins with, before the first generation
    newcomer,   // joining; before the first generation it was told which state to restore
  };
  // A worker introduces itself, for the first time or again.
  Arrival hello(const Message& message, const messages::Hello& hello, Seconds now);
  // The members of the old generation are there, or have been waited for long enough.
  bool gathered(Seconds now) const;
  // Before the first generation: tells all workers to restore the state after job.first_step updates.
  void restore_all();

  // A worker that is in the roster no more speaks, and hears that the others go on without it.
  void turn_away(PeerId stranger);

  // Whether a worker that was asked to leave can do so at once: it is no member, nor about to be, and nobody needs the
  // state that it has.
  bool may_leave(const Worker& worker) const;
  // Each of these takes a worker out of the roster and returns what was known of it.
  Worker dismiss(PeerId peer);                            // it was asked to leave
  Worker remove(PeerId peer, const std::string& reason);  // it is gone
  // Tells a worker that it is evicted; remove() must follow. It does not come back if it is guilty.
  void expel(PeerId peer, const std::string& reason, bool guilty);

 private:
  bool is_current(const Message& message) const;

  JobState& job_;
  Seconds gather_until_;
  std::map<PeerId, std::string> gone_;  // and their endpoints
  std::set<PeerId> unwanted_;           // those that must not come back as new workers: found guilty, or asked to leave
};

}  // namespace elinvar
