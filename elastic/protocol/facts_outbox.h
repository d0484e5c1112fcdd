#pragma once
// The facts of the steps that a member has made, until its coordinator confirms that they are on file. The leader tells
// of them; all members keep them, since the leader may die before it has told, or its coordinator before it has
// written.
#include <deque>
#include <vector>

#include "elastic/protocol/told_facts.h"

namespace elinvar {

class FactsOutbox {
 public:
  void add(const StepFacts& facts);                   // of the next step
  void adopt(const std::vector<ToldFacts>& facts);    // instead of its own: those that come with a state
  void confirm(int64_t step);                         // that all up to this one are on file
  void forget() { unconfirmed_.clear(); }             // the run goes on from an earlier state
  std::vector<ToldFacts> before(int64_t step) const;  // unconfirmed ones

  // The contents of messages, each of bounded size, that tell of all unconfirmed steps, or of those alone that were not
  // told yet. Empty if there are none. `made` is the number of updates made: what comes later counts as not told.
  std::vector<TellsFacts> all(int64_t made);
  std::vector<TellsFacts> untold(int64_t made);
  // Whether so many steps have gathered that they are to be told now.
  bool gathered(int64_t step, int most) const { return step >= told_ + most; }

 private:
  std::vector<TellsFacts> after(int64_t step, int64_t made);

  std::deque<ToldFacts> unconfirmed_;
  int64_t told_ = -1;  // the last step that this member has told of
};

}  // namespace elinvar
