#include "elastic/protocol/missed_results.h"

#include <utility>

namespace elinvar {

MissedResults::MissedResults(std::string endpoint, const MemberPosition& position, const GradientLayout& layout,
                             const ExchangeInbox& inbox, StepReduction& reduction, MemberOutbox& outbox)
    : endpoint_(std::move(endpoint)),
      position_(position),
      layout_(layout),
      inbox_(inbox),
      reduction_(reduction),
      outbox_(outbox) {}

void MissedResults::listen() {
  if (!layout_.known()) return;
  reduction_.listen();
  if (position_.active() && ahead_ != 0) outbox_.send(std::exchange(ahead_, 0), messages::Fetch{endpoint_});
}

void MissedResults::begins_with(int64_t first, const std::map<PeerId, int64_t>& completed) {
  for (const auto& [peer, of_peer] : completed)
    if (of_peer == first) ahead_ = peer;
}

void MissedResults::asked_for_values(const Message& message) {
  asked_ = message;
  fetch_commit(message);
}

void MissedResults::fenced() {
  if (asked_) fetch_commit(*asked_);
}

void MissedResults::fetch_commit(const Message& asked) {
  if (!position_.active() || !position_.fenced() || asked.step != position_.completed || inbox_.exchange()) return;
  if (asked.generation < position_.number()) return;  // perhaps of another history
  reduction_.listen();
  outbox_.send(asked.sender, position_.number(), asked.step, messages::Fetch{endpoint_});
}

}  // namespace elinvar
