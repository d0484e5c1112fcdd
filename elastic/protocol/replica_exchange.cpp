#include "elastic/protocol/replica_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "elastic/protocol/value_pieces.h"
#include "tensor/base/check.h"

namespace elinvar {

using messages::ShardValue;
using messages::ShardValues;

namespace {

// Returns why the message is invalid, or "".
std::string fault_of(const ShardValues& values) {
  std::span<const Blob> left = values.elements;
  for (const ShardValue& value : values.values) {
    const auto bytes = static_cast<size_t>(value.shape.numel() * size_of(value.dtype));
    const size_t pieces = count_of_pieces(bytes);
    if (pieces > left.size()) return "values are missing";
    if (!are_pieces(left.first(pieces), bytes)) return "a value has another size";
    left = left.subspan(pieces);
  }
  return values.values.empty() || !left.empty() ? "values are missing" : "";
}

// Returns whether the values are those of exactly these virtual shards, in order.
bool covers(const ShardValues& values, const Interval& shards) {
  int end = shards.begin;
  for (const ShardValue& value : values.values) {
    if (value.begin != end || value.end <= value.begin) return false;
    end = value.end;
  }
  return end == shards.end;
}

}  // namespace

void ReplicaExchange::begin(int vrank) {
  const std::pair now{position_.number(), position_.completed};
  if (std::exchange(at_, now) != now) numbers_.clear();
  current_ = {.generation = now.first, .step = now.second, .vrank = vrank, .number = numbers_[vrank]};
  sent_ = false;
}

void ReplicaExchange::end() {
  if (current_) numbers_[current_->vrank] = current_->number;
  current_.reset();
}

bool ReplicaExchange::going() const {
  return current_ && position_.active() && !position_.fenced() && position_.number() == current_->generation &&
         position_.completed == current_->step;
}

void ReplicaExchange::send(ShardValues values) {
  values.vrank = current_->vrank;
  values.number = current_->number;
  send([&, payload = Payload(std::move(values))](int) { return payload; });
}

void ReplicaExchange::send(std::map<int, ShardValues> values) {
  send([&](int member) {
    ShardValues& own = values.at(member);
    own.vrank = current_->vrank;
    own.number = current_->number;
    return Payload(std::move(own));
  });
}

template <class PayloadOf>
void ReplicaExchange::send(const PayloadOf& payload_of) {
  invariant(going() && !sent_, "values are sent once");
  for (const int other : replica_.stage())
    if (other != position_.index)
      outbox_.send(position_.generation->members[static_cast<size_t>(other)].peer, payload_of(other));
  sent_ = true;
}

std::optional<std::map<int, ShardValues>> ReplicaExchange::take(const Fits& fits) {
  invariant(going() && sent_, "values are sent before those of others are taken");
  const auto found = arrived_.find(*current_);
  std::map<int, ShardValues> all;
  for (const int other : replica_.stage()) {
    if (other == position_.index) continue;
    if (found == arrived_.end()) return std::nullopt;
    const GenerationMember& member = position_.generation->members[static_cast<size_t>(other)];
    const auto of_other = found->second.find(member.peer);
    if (of_other == found->second.end()) return std::nullopt;
    const ShardValues& values = of_other->second;
    const bool own = covers(values, member.place.shards);
    if (!own || !std::ranges::all_of(values.values, [&](const ShardValue& value) { return fits(other, value); })) {
      outbox_.report(messages::Suspect{member.peer, own ? "sent values of another shape or type than was expected"
                                                        : "sent values of other virtual shards than its own"});
      found->second.erase(of_other);
      return std::nullopt;
    }
    all.emplace(other, of_other->second);
  }
  if (found != arrived_.end()) arrived_.erase(found);
  ++current_->number;
  sent_ = false;
  return all;
}

std::string ReplicaExchange::missing() const {
  if (!going() || !sent_) return "";
  const auto found = arrived_.find(*current_);
  std::string workers;
  for (const int other : replica_.stage()) {
    const GenerationMember& member = position_.generation->members[static_cast<size_t>(other)];
    if (other == position_.index || (found != arrived_.end() && found->second.contains(member.peer))) continue;
    workers += fmt::format("{}{}", workers.empty() ? "" : " and ", member.id);
  }
  if (workers.empty()) return "";
  return fmt::format("values of virtual rank {} from worker {}", current_->vrank, workers);
}

void ReplicaExchange::receive(const Message& m, const ShardValues& values) {
  if (m.generation < std::max(position_.promised, position_.number())) return;
  if (position_.loaded && m.step < position_.completed) return;
  const std::string fault = fault_of(values);
  if (!fault.empty())
    return outbox_.report(
        messages::Suspect{m.sender, fmt::format("sent a malformed {}: {}", m.payload.kind().name, fault)});
  arrived_[{m.generation, m.step, values.vrank, values.number}][m.sender] = values;
}

void ReplicaExchange::prune() {
  std::erase_if(arrived_, [&](const auto& entry) {
    return entry.first.generation < std::max(position_.promised, position_.number()) ||
           (position_.loaded && entry.first.step < position_.completed);
  });
}

}  // namespace elinvar
