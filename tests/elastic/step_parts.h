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
  explicit StepParts(int members = 2, int index = 0) : MemberParts(members, index), vranks(2 * members) {}
  int vranks;
  GradientLayout layout{/*bucket_elements=*/3};
  OptimizerShards shards{position, layout};
  CatchingUp catching_up{position, outbox};
  ScalingProgress scaling{ScalingOptions{}};
  ExchangeInbox inbox{position, catching_up, outbox};
  StepAudit audit{{}, vranks, position, outbox};
  MemberGroups groups{false, position, outbox};
  StepReduction reduction{{.vranks = vranks}, position, layout, inbox, audit, groups, shards};
  StepGradients gradients{
      {.vranks = vranks, .checkpoint_every = 4, .state_digest_every = 3}, position, scaling, layout, audit, reduction};
};

}  // namespace elinvar::test
