#include "elastic/protocol/step_reduction.h"

#include <gtest/gtest.h>

#include "tests/elastic/member_parts.h"

namespace elinvar {
namespace {

using test::MemberParts;
using test::Sent;
using Progress = StepReduction::Progress;

RankGradient gradient(int vrank) {
  const float x = static_cast<float>(vrank);
  return {.gradients = {Tensor::full({3}, 1 + x), Tensor::full({2}, 2 + x)},
          .batch_statistics = {Tensor::full({1}, 0.5 + x)},
          .facts = {.loss_sum = x, .count = 1, .samples = 1}};
}

struct Step : MemberParts {
  explicit Step(int members = 2, int index = 0) : MemberParts(members, index), vranks(2 * members) {}
  int vranks;
  CatchingUp catching_up;
  ExchangeInbox inbox{position, catching_up, outbox};
  StepAudit audit{{}, vranks, position, outbox};
  MemberGroups groups{false, position, outbox};
  StepReduction reduction{{.vranks = vranks, .bucket_elements = 3}, position, inbox, audit, groups};
};

TEST(StepReduction, ComputesItsShareAndNothingElse) {
  Step at(2, 1);
  EXPECT_EQ(at.reduction.todo(), (std::vector<int>{2, 3}));
  EXPECT_TRUE(at.reduction.owns(2));
  EXPECT_FALSE(at.reduction.owns(0));
  at.reduction.add(0, 3, gradient(3), 1);
  EXPECT_EQ(at.reduction.todo(), (std::vector<int>{2}));
  at.reduction.add(/*step=*/1, 2, gradient(2), 1);
  at.reduction.add(0, 0, gradient(0), 1);
  EXPECT_EQ(at.reduction.todo(), (std::vector<int>{2})) << "of another step, and of another member";
  at.position.generation->first_step = 4;
  EXPECT_TRUE(at.reduction.todo().empty()) << "the generation has not begun";
}

TEST(StepReduction, AMemberAloneHasTheMeanOfAll) {
  Step at(1, 0);
  EXPECT_FALSE(at.reduction.knows_layout());
  for (const int v : {0, 1}) at.reduction.add(0, v, gradient(v), 1);
  EXPECT_TRUE(at.reduction.knows_layout());
  EXPECT_EQ(at.reduction.reduce(), Progress::abandoned) << "nothing is contributed yet";
  at.reduction.contribute({.held = 1}, {});
  ASSERT_EQ(at.reduction.reduce(), Progress::complete);
  const StepReduction::Result result = at.reduction.take();
  const Reduced reduced = at.reduction.reduced(result);
  EXPECT_EQ(reduced.count, 2);
  EXPECT_EQ(reduced.loss, 0.5);
  EXPECT_EQ(reduced.generation, 1);
  ASSERT_EQ(reduced.gradients.size(), 2u);
  EXPECT_EQ(reduced.gradients[0].span<float>()[0], 1.5f);
  EXPECT_EQ(reduced.gradients[1].span<float>()[1], 2.5f);
  ASSERT_EQ(reduced.batch_statistics.size(), 1u);
  EXPECT_EQ(reduced.batch_statistics[0].item(), 2) << "they are added, not averaged";
  EXPECT_EQ(at.reduction.reduce(), Progress::abandoned) << "it has been taken";
}

TEST(StepReduction, NothingIsContributedBeforeTheShareIsWhole) {
  Step at(2, 1);
  at.reduction.add(0, 2, gradient(2), 1);
  at.reduction.contribute({.held = 1}, {});
  EXPECT_EQ(at.sent(), Sent{});
  at.reduction.add(0, 3, gradient(3), 1);
  at.position.promised = 2;
  at.reduction.contribute({.held = 1}, {});
  EXPECT_EQ(at.sent(), Sent{}) << "nor while it is fenced";
  at.position.promised = 1;
  at.reduction.contribute({.held = 1}, {});
  EXPECT_EQ(at.sent(), (Sent{"contribution>1", "part>1"})) << "the second bucket is its own";
  EXPECT_EQ(at.reduction.reduce(), Progress::waiting);
  EXPECT_NE(at.reduction.missing(), "");
}

TEST(StepReduction, OnlyTheLastGradientOfAShareIsOpened) {
  Step at(2, 1);
  ASSERT_TRUE(at.reduction.learn_layout(gradient(0)));
  EXPECT_FALSE(at.reduction.learn_layout(gradient(0))) << "it is known";
  EXPECT_FALSE(at.reduction.opens(2));
  at.reduction.add(0, 2, gradient(2), 1);
  EXPECT_TRUE(at.reduction.opens(3));
  const RankGradient last = gradient(3);
  at.reduction.open(0, 3, 1, last.batch_statistics);
  EXPECT_TRUE(at.reduction.has_open());
  at.reduction.put(0, last.gradients[0]);
  EXPECT_EQ(at.sent(), Sent{"contribution>1"}) << "the first bucket is whole while the pass goes on";
  at.reduction.put(1, last.gradients[1]);
  at.reduction.add(0, 3, last, 1);
  EXPECT_FALSE(at.reduction.has_open());
  EXPECT_TRUE(at.reduction.todo().empty());
  Step alone(1, 0);
  alone.reduction.learn_layout(gradient(0));
  alone.reduction.add(0, 0, gradient(0), 1);
  EXPECT_FALSE(alone.reduction.opens(1)) << "nobody waits for it";
}

TEST(StepReduction, AMemberAloneMovesItsGradientsOnce) {
  Step alone(1, 0), two(2, 0);
  EXPECT_TRUE(alone.reduction.keeps_leaves());
  EXPECT_TRUE(alone.reduction.let_leaves_go());
  EXPECT_FALSE(alone.reduction.keeps_leaves());
  EXPECT_FALSE(alone.reduction.let_leaves_go()) << "there is nothing more to move";
  EXPECT_FALSE(two.reduction.keeps_leaves()) << "without a group they meet on the CPU";
  EXPECT_FALSE(two.reduction.let_leaves_go());
}

}  // namespace
}  // namespace elinvar
