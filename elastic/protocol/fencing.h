#pragma once
// A fence: which workers were asked to ignore everything older, which have answered, and with whom the job can go on
// (PROTOCOL.md, "Death"). The job is in phase `fencing` until all have answered, and then in `holding` while they are
// too few.
#include <set>
#include <string>

#include "elastic/protocol/job_state.h"
#include "elastic/protocol/recovery.h"

namespace elinvar {

class Fencing {
 public:
  explicit Fencing(JobState& job) : job_(job) {}

  // Raises the number, drops the proposal, and asks all workers that may be computing or are ready to.
  void begin(const std::string& reason, Seconds now);
  void ask(PeerId peer);     // again, a worker that has introduced itself again
  void repeat(Seconds now);  // asks again those whose answer is overdue

  enum class Answer {
    ignored,     // answers an earlier fence, or was not asked
    counts,      // all may have answered now
    of_another,  // it has promised a higher number to another coordinator: another fence must follow
  };
  Answer answered(Worker& worker, const Message& message, const messages::Fenced& answer);
  void forget(PeerId peer);  // the worker is gone

  bool asked(PeerId peer) const { return asked_.contains(peer); }
  bool complete() const;  // all have answered
  const std::string& reason() const { return reason_; }

  // Returns what the workers that have answered go on with. Requires complete().
  Recovery recovery() const { return recovery_after(job_.workers, asked_); }
  // Lets workers that are in no generation, and with which the job cannot go on, learn the state anew.
  void return_learners(const std::vector<PeerId>& members);
  // Returns whether any of them was at work. If none was, the others may have gone on together, out of reach.
  bool any_at_work() const;
  bool any_came() const;      // a worker has become ready meanwhile
  void hold(size_t members);  // too few members to go on

 private:
  JobState& job_;
  std::string reason_;
  Seconds asked_at_ = 0;
  std::set<PeerId> asked_;  // all of them are in the roster
};

}  // namespace elinvar
