#include "elastic/protocol/optimizer_shards.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tensor/base/check.h"

namespace elinvar {

bool OptimizerShards::on() const { return position_.generation && position_.generation->sharding; }

const OptimizerShards::Tables& OptimizerShards::tables() const {
  if (tables_.number == position_.number()) return tables_;
  invariant(on(), "the optimizer's state is sharded");
  const Generation& generation = *position_.generation;
  const Sharding& sharding = *generation.sharding;
  const int buckets = layout_.shard_buckets().count(), me = position_.index;
  tables_ = {.number = generation.number};
  const std::vector<std::vector<int>> keepers = keepers_of(sharding.keepers, buckets);
  std::vector<std::vector<int>> holders;
  if (!sharding.whole && !sharding.holders.ids.empty()) holders = keepers_of(sharding.holders, buckets);
  for (const int id : providers_of(sharding, buckets, generation.ids()))
    tables_.providers.push_back(generation.index_of_id(id));
  const auto holds = [&](int id, size_t b) {
    const std::vector<int>& ids = sharding.whole ? sharding.holders.ids : holders[b];
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  for (size_t b = 0; b < keepers.size(); ++b) {
    std::vector<int> indexes, lacks;
    for (const int id : keepers[b]) {
      indexes.push_back(generation.index_of_id(id));
      if (!holds(id, b)) lacks.push_back(indexes.back());
    }
    if (std::find(indexes.begin(), indexes.end(), me) != indexes.end()) tables_.kept.push_back(static_cast<int>(b));
    if (std::find(lacks.begin(), lacks.end(), me) != lacks.end()) tables_.gains.push_back(static_cast<int>(b));
    tables_.keepers.push_back(std::move(indexes));
    tables_.lacks.push_back(std::move(lacks));
  }
  return tables_;
}

// A member that lacks the step before its generation may hold the state as members did before that step.
int OptimizerShards::held_with(int64_t step) const {
  return position_.begun() ? position_.generation->held_with(step) : zero_;
}

int OptimizerShards::provider(int bucket, int64_t step) const {
  const bool first = step <= position_.generation->first_step;
  return first ? tables().providers[static_cast<size_t>(bucket)] : keepers(bucket)[0];
}

std::vector<int> OptimizerShards::provides(int64_t step) const {
  std::vector<int> provided;
  for (int b = 0; b < layout_.shard_buckets().count(); ++b)
    if (provider(b, step) == position_.index) provided.push_back(b);
  return provided;
}

std::vector<int> OptimizerShards::digested(int64_t step) const {
  if (held_with(step) == 0) return {};
  return step <= position_.generation->first_step ? provides(step) : kept();
}

std::vector<OptimizerShards::Give> OptimizerShards::take_gives() {
  std::vector<Give> gives;
  const bool first = on() && position_.begun() && position_.step == position_.completed &&
                     position_.step == position_.generation->first_step;
  if (!first || position_.generation->stop || std::exchange(given_, position_.number()) == position_.number())
    return gives;
  std::map<int, std::vector<int>> by_member;
  for (size_t b = 0; b < tables().providers.size(); ++b)
    if (tables().providers[b] == position_.index)
      for (const int member : tables().lacks[b]) by_member[member].push_back(static_cast<int>(b));
  for (auto& [member, buckets] : by_member)
    gives.push_back({position_.generation->members[static_cast<size_t>(member)].peer, std::move(buckets)});
  return gives;
}

void OptimizerShards::receive(const Message& message, const messages::BucketState& state) {
  if (message.generation < std::max(position_.promised, position_.number())) return;
  arrived_.emplace(std::pair(message.generation, state.bucket), state);
}

std::string OptimizerShards::missing() const {
  if (!on() || position_.last()) return "";
  int missing = 0;
  if (position_.completed == position_.generation->first_step)
    for (const int bucket : tables().gains) missing += !arrived_.contains({position_.number(), bucket});
  return missing == 0 ? "" : fmt::format("the optimizer's state of {} buckets", missing);
}

void OptimizerShards::promise() {
  if (!on() || position_.last()) return;  // the last reduction changes no state
  if (promised_ && promised_->step == position_.completed && promised_->number == position_.number()) return;
  Commit& commit = promised_.emplace();
  commit = {.step = position_.completed, .number = position_.number(), .deal = position_.generation->sharding->keepers};
  commit.change.kept = kept();
  commit.change.zero = zero();
  commit.change.zero_before = held_with(position_.completed);
  if (position_.completed == position_.generation->first_step)
    for (const int bucket : tables().gains)
      commit.change.gained.emplace(bucket, arrived_.at({position_.number(), bucket}));
}

void OptimizerShards::committed(int64_t step) {
  if (!promised_ || promised_->step != step) return;
  Commit commit = *std::exchange(promised_, std::nullopt);
  zero_ = commit.change.zero;
  if (!held_ || held_->whole || held_->generation != commit.number) change_ = std::move(commit.change);
  held_ = {.generation = commit.number, .deal = std::move(commit.deal), .zero = zero_};
  std::erase_if(arrived_, [&](const auto& state) { return state.first.first <= commit.number; });
}

void OptimizerShards::uncommitted() { promised_.reset(); }

void OptimizerShards::restored(int zero) {
  uncommitted();
  change_.reset();
  held_ = {.whole = true, .zero = zero_ = zero};
}

void OptimizerShards::learned() {
  uncommitted();
  change_.reset();
  held_.reset();
  zero_ = layout_.zero();
}

std::optional<messages::HeldShards> OptimizerShards::held() const {
  // Without ZeRO, whoever has the state has all of it.
  if (!layout_.sharded() && position_.loaded) return messages::HeldShards{.whole = true, .zero = 0};
  return held_;
}

std::optional<OptimizerShards::Change> OptimizerShards::take_change() { return std::exchange(change_, std::nullopt); }

void OptimizerShards::prune() {
  std::erase_if(arrived_, [&](const auto& state) {
    return state.first.first < std::max(position_.promised, position_.number());
  });
}

}  // namespace elinvar
