#pragma once
// Results of steps that other members have completed and this one has not: when it listens for one, and whom it asks
// for it (PROTOCOL.md, "Death").
#include <map>
#include <optional>
#include <string>

#include "elastic/protocol/step_reduction.h"

namespace elinvar {

class MissedResults {
 public:
  MissedResults(std::string endpoint, const MemberPosition& position, const GradientLayout& layout,
                const ExchangeInbox& inbox, StepReduction& reduction, MemberOutbox& outbox);

  void listen();  // listens for the next result; asks the member that begins_with() has named for it, once
  // A generation begins with step `first`, and this member lacks the result of the step before. `completed` are the
  // reductions that others have completed.
  void begins_with(int64_t first, const std::map<PeerId, int64_t>& completed);
  // Another member asks for the values after a step (ZeRO), so it has the step's trailer. If this member lacks the
  // trailer and is fenced, it fetches the trailer now. It does not wait for the next generation, because a job that
  // holds waits for newcomers, and members that lack values cannot send them the state.
  void asked_for_values(const Message& message);
  void fenced();
  void forget() { ahead_ = 0; }

 private:
  void fetch_commit(const Message& asked);

  const std::string endpoint_;
  const MemberPosition& position_;
  const GradientLayout& layout_;
  const ExchangeInbox& inbox_;
  StepReduction& reduction_;
  MemberOutbox& outbox_;
  PeerId ahead_ = 0;              // the peer that has the result; 0: already asked
  std::optional<Message> asked_;  // the last request for values
};

}  // namespace elinvar
