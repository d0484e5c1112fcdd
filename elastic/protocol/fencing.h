#pragma once
// A fence: who was asked to ignore everything older, who has answered, and with whom the job can go on (PROTOCOL.md,
// "Death"). The job is fenced in the phases `fencing`, until all have answered, and `holding`, after that, as long as
// they are too few.
#include <set>
#include <string>

#include "elastic/protocol/job_state.h"
#include "elastic/protocol/recovery.h"

namespace elinvar {

class Fencing {
 public:
  explicit Fencing(JobState& job) : job_(job) {}

  // Raises the number and asks all who may be computing, or are ready to. The proposal, if there is one, is dropped.
  void begin(const std::string& reason, Seconds now);
  void ask(PeerId peer);     // a worker that was asked before and has introduced itself again
  void repeat(Seconds now);  // asks those again that have not answered for long

  enum class Answer {
    ignored,     // to an earlier fence, or nobody asked
    counts,      // all may have answered now
    of_another,  // it has promised more to another coordinator: another fence must follow
  };
  Answer answered(Worker& worker, const Message& message, const messages::Fenced& answer);
  void forget(PeerId peer);  // it is gone

  bool asked(PeerId peer) const { return asked_.contains(peer); }
  bool complete() const;  // all have answered
  const std::string& reason() const { return reason_; }

  // What those that have answered go on with. Requires complete().
  Recovery recovery() const { return recover(job_.workers, asked_); }
  // Whether any of them was at work: without those that were, the others may have gone on together, out of reach.
  bool any_at_work() const;
  void hold(size_t members);  // so few cannot go on

 private:
  JobState& job_;
  std::string reason_;
  Seconds asked_at_ = 0;
  std::set<PeerId> asked_;  // all of them are in the roster
};

}  // namespace elinvar
