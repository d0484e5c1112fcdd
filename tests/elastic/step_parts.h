#pragma once
// The parts of a member that make a step, together.
#include "elastic/protocol/step_gradients.h"
#include "tests/elastic/member_parts.h"

namespace elinvar::test {

inline RankGradient gradient_of(int vrank) {
  const float x = static_cast<float>(vrank);
  return {.gradients = {Tensor::full({3}, 1 + x), Tensor::full({2}, 2 + x)},
          .batch_statistics = {Tensor::full({1}, 0.5 + x)},
          .facts = {.loss_sum = x, .count = 1, .samples = 1}};
}

struct StepParts : MemberParts {
  // With ZeRO (a stage `zero` above 0) every bucket has one element, and all members have the whole state.
  explicit StepParts(int members = 2, int index = 0, int zero = 0, const std::vector<Shape>& shapes = {{3}, {2}},
                     const std::optional<TensorParts>& parts = {})
      : MemberParts(members, index),
        vranks(2 * members),
        layout(
            /*bucket_elements=*/3,
            zero > 0 ? std::optional(ShardOptions{.parameters = shapes, .zero = zero}) : std::nullopt, parts) {
    if (zero == 0) return;
    const BucketDeal all{.ids = position.generation->ids(), .copies = 1};
    position.generation->sharding =
        Sharding{.zero = zero, .keepers = all, .holders = all, .whole = true, .zero_before = zero};
  }
  int vranks;
  GradientLayout layout;
  OptimizerShards shards{position, layout};
  CatchingUp catching_up{position, outbox};
  ScalingProgress scaling{ScalingOptions{}};
  ExchangeInbox inbox{position, catching_up, outbox};
  StepAudit audit{{}, vranks, position, outbox};
  MemberGroups groups{false, position, outbox};
  ModelReplica replica{position, layout};
  StepReduction reduction{{.vranks = vranks}, position, layout, inbox, audit, groups, shards, replica};
  StepGradients gradients{{.vranks = vranks, .checkpoint_every = 4, .state_digest_every = 3},
                          position,
                          scaling,
                          layout,
                          replica,
                          audit,
                          reduction};
};

}  // namespace elinvar::test
