#include "elastic/protocol/parameter_fetch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tensor/base/check.h"

namespace elinvar {

void ParameterFetch::begin() {
  begun_ = {position_.number(), position_.completed};
  arrived_.clear();
  forgotten_.clear();
  awaited_ = {};
  asked_ = {.number = asked_.number};
}

bool ParameterFetch::going() const {
  return begun_ && position_.active() && !position_.fenced() && *begun_ == At{position_.number(), position_.completed};
}

void ParameterFetch::ask(std::span<const int> buckets, bool average) {
  invariant(going(), "parameters are asked for within a step");
  std::map<int, messages::WantParameters> by_provider;
  for (const int bucket : buckets) by_provider[shards_.provider(bucket, begun_->step)].buckets.push_back(bucket);
  for (auto& [member, want] : by_provider) {
    want.average = average;
    outbox_.send(position_.generation->members[static_cast<size_t>(member)].peer, std::move(want));
  }
}

std::optional<messages::ParameterValues> ParameterFetch::take(int bucket, bool average) {
  awaited_ = {bucket, average};
  std::deque<messages::ParameterValues>& arrived = arrived_[awaited_];
  if (arrived.empty()) return std::nullopt;
  messages::ParameterValues values = std::move(arrived.front());
  arrived.pop_front();
  awaited_ = {};
  return values;
}

void ParameterFetch::forget(int bucket, bool average) {
  const Asked asked{bucket, average};
  if (std::deque<messages::ParameterValues>& arrived = arrived_[asked]; !arrived.empty()) arrived.pop_front();
  else ++forgotten_[asked];
}

void ParameterFetch::ask_rows(int table, const std::map<int, std::vector<int64_t>>& rows, bool average) {
  invariant(going(), "rows are asked for within a step");
  const Shape& shape = layout_.shard_buckets().shapes()[static_cast<size_t>(table)];
  asked_ = {.number = asked_.number + 1, .row_bytes = shape.numel() / shape[0] * int64_t{sizeof(float)}};
  std::map<PeerId, std::string> by_provider;
  for (const auto& [bucket, of_bucket] : rows) {
    const int provider = shards_.provider(bucket, begun_->step);
    const PeerId peer = position_.generation->members[static_cast<size_t>(provider)].peer;
    by_provider[peer].append(reinterpret_cast<const char*>(of_bucket.data()), of_bucket.size() * sizeof(int64_t));
    asked_.awaited[peer].emplace_back(bucket, of_bucket.size());
  }
  for (auto& [peer, bytes] : by_provider)
    outbox_.send(peer,
                 messages::WantRows{
                     .number = asked_.number, .table = table, .average = average, .rows = blob_of(std::move(bytes))});
}

std::optional<std::map<int, Blob>> ParameterFetch::take_rows() {
  asked_.waits = !asked_.awaited.empty();
  if (asked_.waits) return std::nullopt;
  return std::exchange(asked_.arrived, {});
}

std::string ParameterFetch::missing() const {
  if (going() && asked_.waits && !asked_.awaited.empty())
    return fmt::format("rows of a table from {} members", asked_.awaited.size());
  if (!going() || awaited_.bucket < 0) return "";
  return fmt::format("the {} of bucket {}", awaited_.average ? "averages" : "parameters", awaited_.bucket);
}

void ParameterFetch::receive(const Message& m, const messages::WantParameters& want) {
  wanted_.push_back({.at = {m.generation, m.step}, .wanted = {m.sender, want.buckets, want.average}});
  prune();
}

void ParameterFetch::receive(const Message& m, const messages::ParameterValues& values) {
  if (!going() || At{m.generation, m.step} != *begun_) return;
  const bool known = values.bucket >= 0 && values.bucket < layout_.shards();
  if (!known || !layout_.fits(values.bucket, values.slices))
    return outbox_.report(messages::Suspect{m.sender, fmt::format("sent a malformed {}", values.kKind.name)});
  const Asked asked{values.bucket, values.average};
  if (int& forgotten = forgotten_[asked]; forgotten > 0) --forgotten;
  else arrived_[asked].push_back(values);
}

void ParameterFetch::receive(const Message& m, const messages::WantRows& want) {
  if (!names_rows(want))
    return outbox_.report(messages::Suspect{m.sender, fmt::format("sent a malformed {}", want.kKind.name)});
  wanted_rows_.push_back({.at = {m.generation, m.step}, .wanted = {m.sender, want}});
  prune();
}

// Whether these are rows of a sparse table, ascending.
bool ParameterFetch::names_rows(const messages::WantRows& want) const {
  const bool whole = want.rows.bytes > 0 && want.rows.bytes % sizeof(int64_t) == 0;
  if (!layout_.is_table(want.table) || !whole) return false;
  std::vector<int64_t> rows(want.rows.bytes / sizeof(int64_t));
  std::memcpy(rows.data(), want.rows.data, want.rows.bytes);
  int64_t next = 0;
  for (const int64_t row : rows) {
    if (row < next) return false;
    next = row + 1;
  }
  return next <= layout_.shard_buckets().shapes()[static_cast<size_t>(want.table)][0];
}

void ParameterFetch::receive(const Message& m, const messages::RowValues& values) {
  if (!going() || At{m.generation, m.step} != *begun_ || values.number != asked_.number) return;
  const auto found = asked_.awaited.find(m.sender);
  if (found == asked_.awaited.end()) return;
  size_t rows = 0, at = 0;
  for (const auto& [bucket, count] : found->second) rows += count;
  const auto row_bytes = static_cast<size_t>(asked_.row_bytes);
  if (values.values.bytes != rows * row_bytes)
    return outbox_.report(messages::Suspect{m.sender, fmt::format("sent a malformed {}", values.kKind.name)});
  for (const auto& [bucket, count] : found->second) {
    asked_.arrived[bucket] = {values.values.owner, values.values.data + at, count * row_bytes};
    at += count * row_bytes;
  }
  asked_.awaited.erase(found);
}

// Whether the parameters are those of the state before the step that members compute.
bool ParameterFetch::answers() const {
  return position_.active() && position_.loaded && !position_.fenced() && position_.step == position_.completed;
}

std::vector<ParameterFetch::WantedRows> ParameterFetch::take_wanted_rows() {
  std::vector<WantedRows> now;
  if (!answers()) return now;
  std::erase_if(wanted_rows_, [&](RowRequest& request) {
    if (request.at != At{position_.number(), position_.completed}) return false;
    now.push_back(std::move(request.wanted));
    return true;
  });
  return now;
}

void ParameterFetch::give(const WantedRows& wanted, Blob values) {
  outbox_.send(wanted.peer, messages::RowValues{.number = wanted.rows.number, .values = std::move(values)});
}

std::vector<ParameterFetch::Wanted> ParameterFetch::take_wanted() {
  std::vector<Wanted> now;
  if (!answers()) return now;
  const At here{position_.number(), position_.completed};
  std::erase_if(wanted_, [&](Request& request) {
    if (request.at != here) return false;
    std::erase_if(request.wanted.buckets, [&](int bucket) { return bucket < 0 || bucket >= layout_.shards(); });
    now.push_back(std::move(request.wanted));
    return true;
  });
  return now;
}

void ParameterFetch::give(const Wanted& wanted, int bucket, std::vector<Blob> slices) {
  outbox_.send(wanted.peer,
               messages::ParameterValues{.bucket = bucket, .average = wanted.average, .slices = std::move(slices)});
}

void ParameterFetch::prune() {
  std::erase_if(wanted_, [&](const Request& request) { return !counts(request.at); });
  std::erase_if(wanted_rows_, [&](const RowRequest& request) { return !counts(request.at); });
}

bool ParameterFetch::counts(const At& at) const {
  return at.generation >= std::max(position_.promised, position_.number()) &&
         !(position_.loaded && at.step < position_.completed);
}

}  // namespace elinvar
