#include "elastic/protocol/state_transfers.h"

#include <gtest/gtest.h>

#include "tests/elastic/member_parts.h"

namespace elinvar {
namespace {

using test::MemberParts;
using test::Sent;

struct Transfers : MemberParts {
  explicit Transfers(int64_t step) : MemberParts(2, 1, step) {
    layout.learn({.gradients = {Tensor::zeros({3}), Tensor::zeros({2})}});
  }
  static messages::SendState request(bool copies = false) {
    return {.peer = 7, .endpoint = "learner", .part = 1, .parts = 2, .attempt = 3, .copies = copies};
  }
  GradientLayout layout{/*bucket_elements=*/3};  // two buckets
  OptimizerShards shards{position, layout};
  FactsOutbox facts{/*report_every=*/1, position, outbox};
  ScalingProgress scaling{ScalingOptions{}};
  StateTransfers transfers{/*checkpoint_every=*/4,
                           position,
                           layout,
                           outbox,
                           facts,
                           scaling,
                           shards};
};

TEST(StateTransfers, APartIsGivenAtItsBoundaryAndOnce) {
  Transfers at(2);
  at.transfers.begin(/*step=*/3, Transfers::request());
  const std::vector<Action> actions = at.outbox.take();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].what, Action::What::connect);
  EXPECT_EQ(actions[0].endpoint, "learner");
  EXPECT_TRUE(at.transfers.take_parts().empty()) << "the state is that after two updates";
  at.position.completed = at.position.step = 3;
  at.transfers.at_boundary();
  const std::vector<StatePart> parts = at.transfers.take_parts();
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].step, 3);
  EXPECT_EQ(parts[0].part, 1);
  EXPECT_EQ(parts[0].parts, 2);
  EXPECT_EQ(parts[0].to, 7u);
  EXPECT_EQ(parts[0].attempt, 3);
  EXPECT_TRUE(parts[0].throttled);
  at.position.step = 4;
  at.transfers.at_boundary();
  EXPECT_TRUE(at.transfers.take_parts().empty());
}

TEST(StateTransfers, CheckpointsAreScheduledAndAskedFor) {
  Transfers at(4);
  EXPECT_TRUE(at.transfers.scheduled());
  EXPECT_FALSE(at.transfers.asked_to_save());
  at.position.generation->checkpoint = true;
  EXPECT_TRUE(at.transfers.asked_to_save()) << "the generation begins here";
  at.position.completed = at.position.step = 5;
  EXPECT_FALSE(at.transfers.scheduled());
  EXPECT_FALSE(at.transfers.asked_to_save());
  at.position.completed = at.position.step = at.position.steps;
  EXPECT_TRUE(at.transfers.scheduled()) << "the last one";
}

TEST(StateTransfers, ABoundaryThatHasPassedIsMissed) {
  Transfers at(4);
  at.transfers.begin(3, Transfers::request());
  EXPECT_EQ(at.sent(), Sent{"missed>99"});
  EXPECT_FALSE(at.transfers.any());
}

// During a fence no member makes steps, so the state is sent at once and is not throttled.
TEST(StateTransfers, AFencedMemberDoesNotThrottle) {
  Transfers at(4);
  at.position.promised = 2;
  at.transfers.begin(4, Transfers::request());
  const std::vector<StatePart> parts = at.transfers.take_parts();
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_FALSE(parts[0].throttled);
}

TEST(StateTransfers, ALearnerGetsEveryResultFromItsBoundaryOn) {
  Transfers at(2);
  at.transfers.begin(3, Transfers::request(/*copies=*/true));
  at.outbox.take();
  const std::vector<Tensor> values = {Tensor::full({3}, 1), Tensor::full({2}, 2)};
  at.transfers.completed(2, values, {}, true);
  EXPECT_EQ(at.sent(), Sent{}) << "the state has it already";
  at.transfers.completed(3, values, {}, true);
  EXPECT_EQ(at.sent(), (Sent{"result>7", "result>7", "trailer>7"}));
  EXPECT_EQ(at.last.generation, kCopyGeneration);
  EXPECT_EQ(at.last.step, 3);
  EXPECT_EQ(at.last.as<messages::Trailer>()->attempt, 3);
  at.transfers.completed(at.position.steps, {}, {}, true);
  EXPECT_EQ(at.sent(), Sent{"trailer>7"}) << "the last reduction has no tensors";
  at.transfers.stop(7);
  at.transfers.completed(4, values, {}, true);
  EXPECT_EQ(at.sent(), Sent{});
}

TEST(StateTransfers, TheLastResultIsKeptForThoseWhoLackIt) {
  Transfers at(2);
  const std::vector<Tensor> values = {Tensor::full({3}, 1), Tensor::full({2}, 2)};
  at.position.completed = 3;
  at.transfers.completed(2, values, {}, /*kept=*/true);
  EXPECT_TRUE(at.transfers.keeps_result());
  at.transfers.give_result({.sender = 5, .step = 1}, {"e"});
  EXPECT_EQ(at.sent(), Sent{}) << "it is that of another step";
  at.transfers.give_result({.sender = 5, .step = 2}, {"e"});
  EXPECT_EQ(at.sent(), (Sent{"result>5", "result>5", "trailer>5"}));
  at.transfers.completed(3, values, {}, /*kept=*/false);
  EXPECT_FALSE(at.transfers.keeps_result());
}

// After the last reduction, which changes no state, the boundary is still that of the last update.
TEST(StateTransfers, ACheckpointIsOfTheLastUpdate) {
  Transfers at(2);
  at.position.step = at.position.steps + 1;
  at.transfers.save(/*attested=*/true);
  const std::vector<StatePart> parts = at.transfers.take_parts();
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].step, at.position.steps);
  EXPECT_EQ(parts[0].part, 1);
  EXPECT_EQ(parts[0].to, 0u);
  EXPECT_TRUE(parts[0].attested);
  at.position.index = -1;
  at.transfers.save(true);
  EXPECT_TRUE(at.transfers.take_parts().empty()) << "no member";
}

}  // namespace
}  // namespace elinvar
