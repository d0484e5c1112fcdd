#pragma once
// A member of a generation that shards the optimizer's state in five buckets of one element (ZeRO).
#include <algorithm>
#include <set>
#include <vector>

#include "elastic/protocol/optimizer_shards.h"
#include "tests/elastic/member_parts.h"

namespace elinvar::test {

struct ShardedMember : MemberParts {
  static constexpr int kBuckets = 5;
  static constexpr int64_t kFirstStep = 4;

  // Member `index` of `members`, whose ids are 1, 2, .., at the first step of generation 1.
  ShardedMember(int members, int index, const Sharding& sharding) : MemberParts(members, index, kFirstStep) {
    position.generation->sharding = sharding;
  }

  GradientLayout layout{/*bucket_elements=*/1, ShardOptions{.multiple = 1, .parameters = {{3}, {2}}}};
  OptimizerShards shards{position, layout};

  // The trailer of the current step comes, and the update is made.
  void step() {
    shards.promise();
    complete();
    ++position.step;
  }
  void complete() { shards.committed(position.completed++); }
  // A fence and then another generation, which begins with `first_step`.
  void fence(int64_t number) {
    position.promised = number;
    shards.prune();
  }
  void enter(int64_t number, int members, int64_t first_step, const Sharding& sharding) {
    position.generation = generation(number, members, first_step);
    position.generation->sharding = sharding;
    position.promised = std::max(position.promised, number);
    shards.prune();
  }
  void receive_state(int64_t generation, int bucket) {
    const messages::BucketState state{.bucket = bucket, .tensors = {blob_of("state " + std::to_string(bucket))}};
    shards.receive({.sender = 1, .generation = generation}, state);
  }
};

inline bool has(const std::vector<int>& list, int x) { return std::find(list.begin(), list.end(), x) != list.end(); }

// The buckets that worker `id` keeps in a deal.
inline std::vector<int> kept_by(int id, const BucketDeal& deal) {
  const std::vector<std::vector<int>> keepers = keepers_of(deal, ShardedMember::kBuckets);
  std::vector<int> kept;
  for (int b = 0; b < ShardedMember::kBuckets; ++b)
    if (has(keepers[static_cast<size_t>(b)], id)) kept.push_back(b);
  return kept;
}

// Those in `list` that are not in `others`.
inline std::vector<int> without(std::vector<int> list, const std::vector<int>& others) {
  std::erase_if(list, [&](int x) { return has(others, x); });
  return list;
}

}  // namespace elinvar::test
