#include "elastic/protocol/parameter_fetch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tensor/base/check.h"

namespace elinvar {

void ParameterFetch::begin() {
  begun_ = {position_.number(), position_.completed};
  arrived_.clear();
  forgotten_.clear();
  awaited_ = -1;
}

bool ParameterFetch::going() const {
  return begun_ && position_.active() && !position_.fenced() && *begun_ == At{position_.number(), position_.completed};
}

void ParameterFetch::ask(std::span<const int> buckets) {
  invariant(going(), "parameters are asked for within a step");
  std::map<int, messages::WantParameters> by_provider;
  for (const int bucket : buckets) by_provider[shards_.provider(bucket, begun_->step)].buckets.push_back(bucket);
  for (auto& [member, want] : by_provider)
    outbox_.send(position_.generation->members[static_cast<size_t>(member)].peer, std::move(want));
}

std::optional<messages::ParameterValues> ParameterFetch::take(int bucket) {
  awaited_ = bucket;
  std::deque<messages::ParameterValues>& arrived = arrived_[bucket];
  if (arrived.empty()) return std::nullopt;
  messages::ParameterValues values = std::move(arrived.front());
  arrived.pop_front();
  awaited_ = -1;
  return values;
}

void ParameterFetch::forget(int bucket) {
  if (std::deque<messages::ParameterValues>& arrived = arrived_[bucket]; !arrived.empty()) arrived.pop_front();
  else ++forgotten_[bucket];
}

std::string ParameterFetch::missing() const {
  return going() && awaited_ >= 0 ? fmt::format("the parameters of bucket {}", awaited_) : "";
}

void ParameterFetch::receive(const Message& m, const messages::WantParameters& want) {
  wanted_.push_back({.at = {m.generation, m.step}, .peer = m.sender, .buckets = want.buckets});
  prune();
}

void ParameterFetch::receive(const Message& m, const messages::ParameterValues& values) {
  if (!going() || At{m.generation, m.step} != *begun_) return;
  const bool known = values.bucket >= 0 && values.bucket < layout_.shards();
  if (!known || !layout_.shard_buckets().fits(values.bucket, values.slices))
    return outbox_.report(messages::Suspect{m.sender, fmt::format("sent a malformed {}", values.kKind.name)});
  if (int& forgotten = forgotten_[values.bucket]; forgotten > 0) --forgotten;
  else arrived_[values.bucket].push_back(values);
}

std::vector<ParameterFetch::Wanted> ParameterFetch::take_wanted() {
  std::vector<Wanted> now;
  if (!position_.active() || !position_.loaded || position_.fenced() || position_.step != position_.completed)
    return now;
  const At here{position_.number(), position_.completed};
  std::erase_if(wanted_, [&](Request& request) {
    if (request.at != here) return false;
    std::erase_if(request.buckets, [&](int bucket) { return bucket < 0 || bucket >= layout_.shards(); });
    now.push_back({request.peer, std::move(request.buckets)});
    return true;
  });
  return now;
}

void ParameterFetch::give(PeerId to, int bucket, std::vector<Blob> slices) {
  outbox_.send(to, messages::ParameterValues{.bucket = bucket, .slices = std::move(slices)});
}

void ParameterFetch::prune() {
  std::erase_if(wanted_, [&](const Request& request) {
    return request.at.generation < std::max(position_.promised, position_.number()) ||
           (position_.loaded && request.at.step < position_.completed);
  });
}

}  // namespace elinvar
