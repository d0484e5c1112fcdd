#include "elastic/protocol/exchange_inbox.h"

#include <fmt/format.h>

#include <algorithm>

namespace elinvar {

namespace {

// The contributions of thousands of virtual ranks to hundreds of buckets may come early with ZeRO's second stage. Their
// elements are not copied.
constexpr size_t kMostEarly = 1 << 20;

// Returns the attempt of the state transfer that a result or trailer for a learner belongs to; 0 for others.
int64_t attempt_of(const Message& message) {
  return visit(
             message.payload, [](const messages::BucketResult& result) { return result.attempt.value_or(0); },
             [](const messages::Trailer& trailer) { return trailer.attempt.value_or(0); })
      .value_or(0);
}

}  // namespace

bool ExchangeInbox::takes(const Message& message) {
  const Payload& payload = message.payload;
  return payload.as<messages::Contribution>() || payload.as<messages::Check>() ||
         payload.as<messages::BucketResult>() || payload.as<messages::TrailerPart>() ||
         payload.as<messages::Trailer>() || payload.as<messages::GroupRoots>() || payload.as<messages::Word>();
}

SendToMember ExchangeInbox::sender() {
  return [this](int member, Payload payload) {
    outbox_.send(position_.generation->members[static_cast<size_t>(member)].peer, std::move(payload));
  };
}

void ExchangeInbox::begin(Exchange exchange) {
  exchange_.emplace(std::move(exchange));
  const std::vector<Message> early = std::exchange(early_, {});
  for (const Message& m : early) receive(m);
}

void ExchangeInbox::receive(const Message& m) {
  const bool to_active = position_.begun() && !position_.fenced();
  const int64_t expected = to_active ? position_.number() : kCopyGeneration;
  // Copies for a learner belong to one state transfer. Copies of an earlier transfer could lead past what its new
  // sender knows, and past the trailer that makes the learner active.
  const int64_t current = catching_up_.counts_from();
  const bool copy = m.generation == kCopyGeneration;
  const int64_t of_copy = copy ? attempt_of(m) : 0;
  // Fetched sums belong to no attempt. They count only while the member listens for them, because they may be of a
  // history that ended after they were asked for.
  if (copy && of_copy == 0 && !(exchange_ && exchange_->listens())) return;
  const int64_t attempt = copy && (of_copy != 0 || !position_.active()) ? of_copy : current;
  if (attempt < current) return;
  if (exchange_ && m.step == position_.completed && m.generation == expected && attempt == current) {
    const std::string wrong = exchange_->receive(m, sender());
    if (!wrong.empty())
      outbox_.report(messages::Suspect{m.sender, fmt::format("sent a malformed {}: {}", m.payload.kind().name, wrong)});
    return;
  }
  if (!copy && m.generation < std::max(position_.promised, position_.number())) return;
  if ((position_.loaded && m.step < position_.completed) || early_.size() >= kMostEarly) return;
  early_.push_back(m);
}

void ExchangeInbox::prune() {
  std::erase_if(early_, [&](const Message& m) {
    const bool past = position_.loaded && m.step < position_.completed;
    return past || (m.generation != kCopyGeneration && m.generation < position_.promised);
  });
}

}  // namespace elinvar
