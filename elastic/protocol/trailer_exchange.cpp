#include "elastic/protocol/trailer_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace elinvar {
namespace {

// Returns what the parts of all members say together.
messages::Trailer combine(std::map<int, messages::TrailerPart> parts, int vranks) {
  messages::Trailer t;
  t.agreed = INT64_MAX;
  t.facts.resize(static_cast<size_t>(vranks));
  std::string states;
  bool differ = false;
  std::map<int, JsonValue> attached_of;
  for (auto& [from, p] : parts) {
    t.agreed = std::min(t.agreed, p.held);
    t.seconds.push_back(p.seconds);
    if (p.audit) t.audit.push_back(*p.audit);
    std::move(p.sums.begin(), p.sums.end(), std::back_inserter(t.sums));
    std::move(p.chunks.begin(), p.chunks.end(), std::back_inserter(t.chunks));
    for (auto& [vrank, facts] : p.facts)
      if (vrank >= 0 && vrank < vranks) t.facts[static_cast<size_t>(vrank)] = std::move(facts);
    for (auto& [vrank, attached] : p.attached)
      if (vrank >= 0 && vrank < vranks) attached_of[vrank] = std::move(attached);
    t.group = from == 0 || p.group == t.group ? p.group : 0;
    if (!t.scaling_state) t.scaling_state = p.scaling_state;
    if (p.scaling_state != t.scaling_state)
      t.contradiction = fmt::format("member {} has made the step with another scaling state", from);
    if (!p.state) continue;
    if (!t.state) t.state = p.state;
    differ = differ || *t.state != *p.state;
    states += fmt::format("{}member {} has {}", states.empty() ? "" : ", ", from, p.state->hex());
  }
  if (differ) t.contradiction = states;
  for (auto& [vrank, attached] : attached_of) t.facts[static_cast<size_t>(vrank)].attached = std::move(attached);
  std::sort(t.sums.begin(), t.sums.end(), [](const auto& x, const auto& y) { return x.bucket < y.bucket; });
  std::stable_sort(t.chunks.begin(), t.chunks.end(), [](const auto& x, const auto& y) { return x.bucket < y.bucket; });
  // Several members keep a bucket; they must agree on its state.
  const auto same = [&](const messages::StateChunks& x, const messages::StateChunks& y) {
    if (x.bucket != y.bucket) return false;
    if (x.chunks.bytes != y.chunks.bytes || std::memcmp(x.chunks.data, y.chunks.data, x.chunks.bytes) != 0)
      t.contradiction = fmt::format("the keepers of bucket {} have different states of the optimizer", x.bucket);
    return true;
  };
  t.chunks.erase(std::unique(t.chunks.begin(), t.chunks.end(), same), t.chunks.end());
  return t;
}

}  // namespace

void TrailerExchange::contribute(const messages::TrailerPart& part, const StateDigests& digests,
                                 const SendToMember& send) {
  contributed_ = true;
  digests_ = digests;
  if (me_ == 0) add(part, send);
  else send(0, part);
}

std::string TrailerExchange::receive(const messages::TrailerPart& part, const SendToMember& send) {
  if (me_ != 0 || part.member <= 0 || part.member >= members_) return "a part that is not expected";
  add(part, send);
  return "";
}

std::string TrailerExchange::receive(const messages::Trailer& trailer) {
  if (trailer.facts.size() != static_cast<size_t>(vranks_)) return "the trailer has another number of virtual ranks";
  if (!trailer_) trailer_ = trailer;
  return "";
}

void TrailerExchange::add(messages::TrailerPart part, const SendToMember& send) {
  parts_[part.member] = std::move(part);
  if (static_cast<int>(parts_.size()) < members_ || trailer_) return;
  messages::Trailer trailer = combine(std::exchange(parts_, {}), vranks_);
  if (trailer.state) trailer.state_digests = digests_;
  for (int other = 1; other < members_; ++other) send(other, trailer);
  trailer_ = std::move(trailer);
}

std::string TrailerExchange::missing() const {
  if (trailer_) return "";
  if (me_ != 0) return "the trailer";
  return fmt::format("{} of {} parts of the trailer", static_cast<size_t>(members_) - parts_.size(), members_);
}

}  // namespace elinvar
