#pragma once
// The facts of the steps that a member has made, until its coordinator confirms that they are recorded. The leader
// reports them, several steps in one message: each message wakes six threads, so the cost must depend on seconds and
// not on steps. All members keep them, because the leader may die before it has reported, or the coordinator before it
// has written.
#include <deque>
#include <vector>

#include "elastic/protocol/member_outbox.h"

namespace elinvar {

class FactsOutbox {
 public:
  // The leader reports when the facts of `report_every` steps have gathered, if nothing waits for them earlier.
  FactsOutbox(int report_every, const MemberPosition& position, MemberOutbox& outbox)
      : report_every_(report_every), position_(position), outbox_(outbox) {}

  void add(const StepFacts& facts);                      // adds the next step's facts
  void adopt(const std::vector<EncodedFacts>& facts);    // replaces its own facts by those that come with a state
  void confirm(int64_t step);                            // all facts up to this step are recorded
  void forget() { unconfirmed_.clear(); }                // the run continues from an earlier state
  std::vector<EncodedFacts> before(int64_t step) const;  // unconfirmed facts of earlier steps

  void report_all();  // reports all unconfirmed facts
  // Each reports, if this member leads, the facts that it has not reported yet; the latter in a heartbeat, as far as
  // they fit into it.
  void report_new();
  void report_new(messages::Alive& heartbeat);
  // Returns whether enough steps have gathered to be reported, of which `step` is the last.
  bool gathered(int64_t step) const { return step >= reported_ + report_every_; }

 private:
  std::vector<FactsBatch> after(int64_t step);
  void report(std::vector<FactsBatch> facts);

  int report_every_;
  const MemberPosition& position_;
  MemberOutbox& outbox_;
  std::deque<EncodedFacts> unconfirmed_;
  int64_t reported_ = -1;  // the last step that this member has reported
};

}  // namespace elinvar
