#pragma once
// The facts of the steps that a member has made, until its coordinator confirms that they are recorded. The leader
// reports them. All members keep them, because the leader may die before it has reported, or the coordinator before it
// has written.
#include <deque>
#include <vector>

#include "elastic/protocol/told_facts.h"

namespace elinvar {

class FactsOutbox {
 public:
  void add(const StepFacts& facts);                   // adds the next step's facts
  void adopt(const std::vector<ToldFacts>& facts);    // replaces its own facts by those that come with a state
  void confirm(int64_t step);                         // all facts up to this step are recorded
  void forget() { unconfirmed_.clear(); }             // the run continues from an earlier state
  std::vector<ToldFacts> before(int64_t step) const;  // unconfirmed facts of earlier steps

  // Returns the contents of messages, each of bounded size, with all unconfirmed steps, or with those that were not
  // reported yet. Empty if there are none. `made` is the number of updates made: later steps count as not reported.
  std::vector<TellsFacts> all(int64_t made);
  std::vector<TellsFacts> untold(int64_t made);
  // Returns whether `most` steps have gathered, so that they must be reported now.
  bool gathered(int64_t step, int most) const { return step >= told_ + most; }

 private:
  std::vector<TellsFacts> after(int64_t step, int64_t made);

  std::deque<ToldFacts> unconfirmed_;
  int64_t told_ = -1;  // the last step that this member has reported
};

}  // namespace elinvar
