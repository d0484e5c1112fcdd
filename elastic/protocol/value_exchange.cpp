#include "elastic/protocol/value_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tensor/base/check.h"

namespace elinvar {

void ValueExchange::begin(int64_t step, bool sends, std::vector<int> keeps, std::shared_ptr<GpuGroup> group) {
  values_ = {.step = step, .number = position_.number(), .keeps = std::move(keeps)};
  std::set<int> others;
  for (int b = 0; b < layout_.shards(); ++b) others.insert(b);
  for (const int b : values_.keeps) others.erase(b);
  // A worker that updates nothing needs no sums.
  if (layout_.sums() && !values_.keeps.empty()) values_.missing_sums = others;
  if (layout_.whole_parameters()) values_.missing = others;
  sums_step_ = step;
  sums_.clear();
  if (!sends) return;
  const std::vector<GenerationMember>& members = position_.generation->members;
  for (const GenerationMember& m : members)
    if (m.peer != position_.self) values_.peers.push_back(m.peer);
  for (const int b : others)
    for (const int member : shards_.keepers(b)) values_.keepers[b].push_back(members[static_cast<size_t>(member)].peer);
  for (const int b : values_.keeps)
    if (shards_.keepers(b)[0] == position_.index) values_.owned.insert(b);
  if (!layout_.whole_parameters()) return;
  if (group) return plan_transfer(std::move(group));
  for (const int b : values_.owned)
    for (int m = 0; m < position_.members(); ++m)
      if (!shards_.keeps(m, b)) values_.to_send[b].push_back(members[static_cast<size_t>(m)].peer);
}

// All members plan the same transfers, from the tables of the generation.
void ValueExchange::plan_transfer(std::shared_ptr<GpuGroup> group) {
  GroupTransfer& plan = values_.by_group.emplace(GroupTransfer{.group = std::move(group), .sends = {}, .receives = {}});
  for (int m = 0; m < position_.members(); ++m) {
    if (m == position_.index) continue;
    std::vector<int>&sends = plan.sends[m], &receives = plan.receives[m];
    for (const int b : values_.owned)
      if (!shards_.keeps(m, b)) sends.push_back(b);
    for (const int b : values_.missing)
      if (shards_.keepers(b)[0] == m) receives.push_back(b);
  }
}

bool ValueExchange::transfers() const {
  return pending() && values_.by_group && !position_.fenced() && position_.number() == values_.number;
}

void ValueExchange::transferred() { values_.missing.clear(); }

void ValueExchange::forget() {
  end();
  early_.clear();
  wanted_.clear();
}

bool ValueExchange::counts(const Message& m) const {
  if (!pending() || m.step != values_.step) return false;
  const auto* values = m.as<messages::BucketValues>();
  return m.generation == kCopyGeneration ? values && values->attempt == catching_up_.counts_from()
                                         : m.generation >= values_.number;
}

// Takes a message that is due now.
bool ValueExchange::take(const Message& m) {
  if (!counts(m)) return false;
  const auto malformed = [&] {
    outbox_.report(messages::Suspect{m.sender, fmt::format("sent a malformed {}", m.payload.kind().name)});
  };
  if (const auto* sums = m.as<messages::BucketSums>()) {
    if (sums->bucket < 0 || sums->bucket >= layout_.shards()) malformed();
    else if (values_.missing_sums.erase(sums->bucket) > 0) sums_[sums->bucket] = sums->sums;
    return true;
  }
  const auto& values = *m.as<messages::BucketValues>();
  const bool known = values.bucket >= 0 && values.bucket < layout_.shards();
  if (!known || !layout_.fits(values.bucket, values.slices)) malformed();
  else if (values_.missing.erase(values.bucket) > 0) values_.arrived.push_back(values);
  return true;
}

void ValueExchange::receive(const Message& m, const messages::BucketValues&) {
  if (!take(m) && may_count(m)) early_.push_back(m);
}

void ValueExchange::receive(const Message& m, const messages::BucketSums&) {
  if (!take(m) && may_count(m)) early_.push_back(m);
}

// Whether a message that is not due now may be due later.
bool ValueExchange::may_count(const Message& m) const {
  if (position_.loaded && m.step < position_.completed && m.step != values_.step) return false;
  if (m.generation != kCopyGeneration) return m.generation >= position_.number();
  const auto* values = m.as<messages::BucketValues>();
  return values && values->attempt.value_or(0) >= catching_up_.counts_from();
}

void ValueExchange::review() {
  std::vector<Message> early = std::exchange(early_, {});
  for (Message& m : early)
    if (!take(m) && may_count(m)) early_.push_back(std::move(m));
}

void ValueExchange::fence(const std::string& endpoint) {
  std::map<PeerId, messages::WantValues> by_peer;
  for (const auto& [bucket, peers] : values_.keepers)
    for (const PeerId peer : peers) {
      if (values_.missing.contains(bucket)) by_peer[peer].buckets.push_back(bucket);
      if (values_.missing_sums.contains(bucket)) by_peer[peer].sums.push_back(bucket);
    }
  for (auto& [peer, want] : by_peer) {
    if (want.buckets.empty() && want.sums.empty()) continue;
    want.endpoint = endpoint;
    outbox_.send(peer, position_.number(), values_.step, std::move(want));
  }
}

void ValueExchange::ask(const std::string& endpoint) {
  if (!pending()) return;
  std::map<int, messages::WantValues> by_provider;
  const bool of_generation = values_.step >= position_.generation->first_step;
  std::vector<int> others;
  for (int m = 0; m < position_.members(); ++m)
    if (m != position_.index) others.push_back(m);
  // Behind a fence any of them may be gone. The keepers of a step before the generation were those of another one, but
  // whoever has made the update has all values.
  const auto askees = [&](int bucket) -> std::vector<int> {
    if (!position_.fenced()) return {shards_.provider(bucket, values_.step + 1)};
    return of_generation ? shards_.keepers(bucket) : others;
  };
  for (const int b : values_.missing)
    for (const int member : askees(b)) by_provider[member].buckets.push_back(b);
  for (const int b : values_.missing_sums)
    for (const int member : askees(b)) by_provider[member].sums.push_back(b);
  for (auto& [member, want] : by_provider) {
    invariant(member >= 0 && member != position_.index, "another member has every bucket that this one lacks");
    want.endpoint = endpoint;
    outbox_.send(position_.generation->members[static_cast<size_t>(member)].peer, position_.number(), values_.step,
                 std::move(want));
  }
}

void ValueExchange::give_sums(const std::map<int, Blob>& sums) {
  for (const auto& [bucket, blob] : sums) {
    sums_[bucket] = blob;
    if (!values_.owned.contains(bucket)) continue;
    for (const PeerId peer : values_.peers)
      outbox_.send(peer, position_.number(), values_.step, messages::BucketSums{.bucket = bucket, .sums = blob});
  }
  for (Wanted& wanted : wanted_) answer_sums(wanted);
}

const std::map<int, Blob>* ValueExchange::sums() const { return values_.missing_sums.empty() ? &sums_ : nullptr; }

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
  if (!pending()) return "";
  if (!values_.missing_sums.empty()) return fmt::format("the sums of {} buckets", values_.missing_sums.size());
  return values_.missing.empty() ? "" : fmt::format("the values of {} buckets", values_.missing.size());
}

void ValueExchange::receive(const Message& m, const messages::WantValues& want) {
  outbox_.connect(m.sender, want.endpoint);
  wanted_.push_back({.peer = m.sender, .step = m.step, .buckets = want.buckets, .sums = want.sums});
  answer_sums(wanted_.back());
}

void ValueExchange::answer_sums(Wanted& wanted) {
  if (wanted.step != sums_step_) return;
  std::erase_if(wanted.sums, [&](int bucket) {
    const auto found = sums_.find(bucket);
    if (found == sums_.end()) return false;
    outbox_.send(wanted.peer, position_.number(), wanted.step,
                 messages::BucketSums{.bucket = bucket, .sums = found->second});
    return true;
  });
}

// Before an update is complete, the member has only the values that it made itself.
bool ValueExchange::has(int bucket, int64_t step) const {
  if (!position_.loaded || position_.number() == 0) return false;
  // No member lacks a value after an update in this history; in another one, members had all parameters.
  if (form_of(shards_.held_with(step + 1)) == HeldForm::sliced) return false;
  if (!pending()) return step == position_.step - 1 && position_.completed == position_.step;
  return step == values_.step && values_.updated &&
         std::find(values_.keeps.begin(), values_.keeps.end(), bucket) != values_.keeps.end();
}

std::vector<ValueExchange::Wanted> ValueExchange::take_wanted() {
  std::vector<Wanted> now;
  for (Wanted& wanted : wanted_) {
    answer_sums(wanted);
    Wanted& give = now.emplace_back(Wanted{.peer = wanted.peer, .step = wanted.step});
    std::erase_if(wanted.buckets, [&](int bucket) {
      if (bucket < 0 || bucket >= layout_.shards()) return true;
      if (!has(bucket, wanted.step)) return false;
      give.buckets.push_back(bucket);
      return true;
    });
    if (give.buckets.empty()) now.pop_back();
  }
  std::erase_if(wanted_, [&](const Wanted& wanted) {
    return (wanted.buckets.empty() && wanted.sums.empty()) || wanted.step < position_.step - 1;
  });
  return now;
}

void ValueExchange::give(const Wanted& to, int bucket, std::vector<Blob> slices) {
  outbox_.send(to.peer, position_.number(), to.step,
               messages::BucketValues{.bucket = bucket, .slices = std::move(slices)});
}

}  // namespace elinvar
