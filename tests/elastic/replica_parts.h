#pragma once
// Members of model replicas. The network of a ReplicaMember has two virtual shards, a gradient of each,
// and one that is not cut, which spans two buckets.
#include <memory>

#include "elastic/step/model_replicas.h"
#include "tensor/base/check.h"
#include "tests/elastic/step_parts.h"
#include "tests/elastic/tensor_parts.h"

namespace elinvar::test {

// Lets the members form replicas, of equal speeds.
inline void form_replicas(Generation& g, const ReplicaLimits& limits, int vranks) {
  const std::vector<double> speeds(g.members.size(), 1);
  const std::vector<ReplicaPlace> places = deal_replicas(limits, speeds);
  const std::vector<double> of_replicas(static_cast<size_t>(places.back().replica + 1), 1);
  const auto shares = shares_of_members(places, assign(vranks, of_replicas));
  for (size_t m = 0; m < places.size(); ++m) {
    g.members[m].place = places[m];
    g.members[m].share = g.members[m].first_share = shares[m];
  }
  g.shards = limits.shards;
}
inline void form_replicas(Generation& g, int shards, int most, int vranks) {
  form_replicas(g, {.shards = shards, .tp = most}, vranks);
}

struct ReplicaMember : StepParts {
  static inline const std::vector<int> kShards = {1, -1, 0};  // the virtual shard of each gradient

  // Member `index` of `members`, pairs of which form replicas.
  explicit ReplicaMember(int members, int index, int zero = 0)
      : StepParts(members, index, zero, {{2}, {4}, {3}}, parts_of_shards(kShards)) {
    form_replicas(*position.generation, /*shards=*/2, /*most=*/2, vranks);
    layout.learn(whole(0));
  }

  // Virtual rank 2 has no samples.
  static RankGradient whole(int vrank) {
    if (vrank == 2) return {};
    const double x = 1 + 0.3 * vrank;
    return {.gradients = {Tensor::full({2}, x), Tensor::full({4}, x * x), Tensor::full({3}, 1 / x)},
            .batch_statistics = {Tensor::full({1}, 5 * x)},
            .facts = {.loss_sum = x, .count = 1 + vrank, .samples = 1}};
  }
  // The part that this member has.
  RankGradient own(int vrank) const {
    RankGradient gradient = whole(vrank);
    const Interval mine = replica.place().shards;
    for (size_t t = 0; t < gradient.gradients.size(); ++t)
      if (kShards[t] >= 0 && !contains({&mine, 1}, kShards[t])) gradient.gradients[t] = Tensor();
    return gradient;
  }
  // Computes a virtual rank, whole or tensor by tensor.
  void compute(int vrank, bool puts) {
    const RankGradient gradient = own(vrank);
    if (!puts || gradient.gradients.empty() || !gradients.opens(vrank)) return gradients.add(0, vrank, gradient, 1);
    const bool by_rank = gradients.by_rank();
    gradients.open(0, vrank, gradient.facts.count, gradient.batch_statistics);
    for (int t = 2; t >= 0; --t)
      if (const Tensor& tensor = gradient.gradients[static_cast<size_t>(t)]; tensor.defined()) gradients.put(t, tensor);
    if (by_rank) gradients.close(0, vrank, {.facts = gradient.facts}, 1);
    else gradients.add(0, vrank, gradient, 1);
  }
};

// All members of a generation, and the messages of their exchange.
struct ReplicaJob {
  explicit ReplicaJob(int members, int zero = 0) {
    for (int m = 0; m < members; ++m) at.push_back(std::make_unique<ReplicaMember>(members, m, zero));
  }
  void step(bool puts) {
    for (const auto& member : at) {
      for (const int vrank : member->gradients.todo()) member->compute(vrank, puts);
      member->gradients.contribute({});
    }
    for (int round = 0; round < 10; ++round) {
      deliver();
      for (const auto& member : at)
        progress.at(static_cast<size_t>(member->position.index)) = member->reduction.reduce();
    }
  }
  void deliver() {
    for (const auto& member : at)
      for (Action& action : member->outbox.take()) {
        if (action.what != Action::What::send || action.peer > at.size()) continue;
        action.message.sender = member->position.self;
        messages.push_back(action.message);
        at[static_cast<size_t>(action.peer - 1)]->inbox.receive(action.message);
      }
  }

  std::vector<std::unique_ptr<ReplicaMember>> at;
  std::vector<StepReduction::Progress> progress{8, StepReduction::Progress::abandoned};
  std::vector<Message> messages;  // all that were delivered
};

}  // namespace elinvar::test
