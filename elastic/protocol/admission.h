#pragma once
// Decides who is part of the job. Admits to the roster or refuses workers that introduce themselves. Removes from the
// roster, and remembers, workers that leave, are lost or are evicted (PROTOCOL.md, "Joining", "Death").
#include <map>
#include <set>
#include <string>
#include <vector>

#include "elastic/protocol/job_state.h"

namespace elinvar {

class Admission {
 public:
  // A new coordinator that gathers the members of an old generation waits for them from `now` on.
  Admission(JobState& job, Seconds now) : job_(job), gather_until_(now + job.options.gather_timeout) {}

  enum class Arrival {
    refused,
    known,      // nothing changes
    member,     // a member of the current generation or of the previous one
    caught_up,  // a learner that reports that it has received the state
    starter,    // has the run's initial state, before the first generation
    newcomer,   // joining; before the first generation, it was told which state to restore
  };
  // A worker introduces itself, for the first time or again.
  Arrival hello(const Message& message, const messages::Hello& hello, Seconds now);
  // Returns whether all members of the old generation have come, or the wait for them is over.
  bool gathered(Seconds now) const;
  // Before the first generation: tells all workers to restore the state after job.first_step updates.
  void restore_all();

  // Sends workers away who may come back, because they hold the state in another form than newcomers are to, and
  // returns them. None of them is a member.
  std::vector<PeerId> turn_away_misfits();

  // Tells a worker that is no longer in the roster that the job continues without it.
  void turn_away(PeerId stranger);

  // Returns whether a worker that was asked to leave can do so at once: it is not a member, is not proposed as one, and
  // no other worker needs its state.
  bool may_leave(const Worker& worker) const;
  // Each of these removes a worker from the roster and returns its entry.
  Worker dismiss(PeerId peer);                            // was asked to leave
  Worker remove(PeerId peer, const std::string& reason);  // is gone
  // Tells a worker that it is evicted; remove() must follow. A guilty worker does not return.
  void expel(PeerId peer, const std::string& reason, bool guilty);

 private:
  bool is_current(const Message& message) const;

  JobState& job_;
  Seconds gather_until_;
  std::map<PeerId, std::string> gone_;  // removed workers and their endpoints
  std::set<PeerId> unwanted_;           // must not return as new workers: found guilty, or asked to leave
};

}  // namespace elinvar
