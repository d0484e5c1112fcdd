#include "elastic/protocol/value_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tensor/base/check.h"

namespace elinvar {

void ValueExchange::begin(int64_t step, bool sends, std::vector<int> keeps) {
  values_ = {.step = step, .number = position_.number(), .keeps = std::move(keeps)};
  for (int b = 0; b < layout_.shards(); ++b) values_.missing.insert(b);
  for (const int b : values_.keeps) values_.missing.erase(b);
  if (!sends) return;
  const std::vector<GenerationMember>& members = position_.generation->members;
  for (const int b : values_.missing)
    for (const int member : shards_.keepers(b)) values_.keepers[b].push_back(members[static_cast<size_t>(member)].peer);
  for (const int b : values_.keeps) {
    const std::vector<int>& keepers = shards_.keepers(b);
    if (keepers[0] != position_.index || keepers.size() == members.size()) continue;
    std::vector<PeerId>& to = values_.to_send[b];
    for (size_t m = 0; m < members.size(); ++m)
      if (std::find(keepers.begin(), keepers.end(), static_cast<int>(m)) == keepers.end())
        to.push_back(members[m].peer);
  }
}

// Takes values that are due now.
bool ValueExchange::take(const Message& m, const messages::BucketValues& values) {
  const bool copy = m.generation == kCopyGeneration;
  const bool counts = copy ? values.attempt.value_or(0) == catching_up_.attempt() : m.generation >= values_.number;
  if (!pending() || m.step != values_.step || !counts) return false;
  if (values.bucket < 0 || values.bucket >= layout_.shards() ||
      !layout_.shard_buckets().fits(values.bucket, values.slices)) {
    outbox_.report(messages::Suspect{m.sender, "sent a malformed value: a blob has another size"});
    return true;
  }
  if (values_.missing.erase(values.bucket) > 0) values_.arrived.push_back(values);
  return true;
}

void ValueExchange::receive(const Message& m, const messages::BucketValues& values) {
  if (!take(m, values)) early_.push_back(m);
  review();
}

void ValueExchange::review() {
  std::vector<Message> early = std::exchange(early_, {});
  for (Message& m : early) {
    if (take(m, *m.as<messages::BucketValues>())) continue;
    const bool past = position_.loaded && m.step < position_.completed && m.step != values_.step;
    const bool of_before = m.generation != kCopyGeneration && m.generation < position_.number();
    if (!past && !of_before) early_.push_back(std::move(m));
  }
}

void ValueExchange::fence(const std::string& endpoint) {
  std::map<PeerId, std::vector<int>> by_peer;
  for (const int b : values_.missing)
    if (const auto keepers = values_.keepers.find(b); keepers != values_.keepers.end())
      for (const PeerId peer : keepers->second) by_peer[peer].push_back(b);
  for (auto& [peer, buckets] : by_peer)
    outbox_.send(peer, position_.number(), values_.step, messages::WantValues{std::move(buckets), endpoint});
}

void ValueExchange::ask(const std::string& endpoint) {
  if (!pending()) return;
  std::map<int, std::vector<int>> by_provider;
  for (const int b : values_.missing) by_provider[shards_.provider(b, values_.step + 1)].push_back(b);
  for (auto& [member, buckets] : by_provider) {
    invariant(member >= 0 && member != position_.index, "another member has every bucket that this one lacks");
    outbox_.send(position_.generation->members[static_cast<size_t>(member)].peer, position_.number(), values_.step,
                 messages::WantValues{std::move(buckets), endpoint});
  }
}

std::vector<int> ValueExchange::to_send() const {
  std::vector<int> buckets;
  for (const auto& [bucket, peers] : values_.to_send) buckets.push_back(bucket);
  return buckets;
}

void ValueExchange::send(int bucket, const std::vector<Blob>& slices) {
  for (const PeerId peer : values_.to_send.at(bucket))
    outbox_.send(peer, position_.number(), values_.step, messages::BucketValues{.bucket = bucket, .slices = slices});
}

void ValueExchange::updated() { values_.updated = true; }

std::vector<messages::BucketValues> ValueExchange::take_arrived() { return std::exchange(values_.arrived, {}); }

std::string ValueExchange::missing() const {
  if (!pending() || values_.missing.empty()) return "";
  return fmt::format("the values of {} buckets", values_.missing.size());
}

void ValueExchange::receive(const Message& m, const messages::WantValues& want) {
  outbox_.connect(m.sender, want.endpoint);
  wanted_.push_back({.peer = m.sender, .step = m.step, .buckets = want.buckets});
}

void ValueExchange::forget() {
  end();
  early_.clear();
  wanted_.clear();
}

bool ValueExchange::can_answer(const Wanted& wanted) const {
  if (!position_.generation) return false;  // it has given up its state
  if (pending()) return wanted.step == values_.step && values_.updated;
  return wanted.step == position_.step - 1 && position_.completed == position_.step;
}

std::vector<ValueExchange::Wanted> ValueExchange::take_wanted() {
  std::vector<Wanted> now;
  std::erase_if(wanted_, [&](Wanted& wanted) {
    if (!can_answer(wanted)) return wanted.step < position_.step - 1;
    now.push_back(std::move(wanted));
    return true;
  });
  return now;
}

void ValueExchange::give(const Wanted& to, int bucket, std::vector<Blob> slices) {
  outbox_.send(to.peer, position_.number(), to.step,
               messages::BucketValues{.bucket = bucket, .slices = std::move(slices)});
}

}  // namespace elinvar
