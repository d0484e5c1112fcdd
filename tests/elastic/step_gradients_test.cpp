#include "elastic/protocol/step_gradients.h"

#include <gtest/gtest.h>

#include "tests/elastic/step_parts.h"

namespace elinvar {
namespace {

using test::gradient_of;
using test::Sent;
using test::StepParts;

TEST(StepGradients, AreThoseOfTheMembersShareAndNoOthers) {
  StepParts at(2, 1);
  EXPECT_EQ(at.gradients.todo(), (std::vector<int>{2, 3}));
  EXPECT_TRUE(at.gradients.owns(2));
  EXPECT_FALSE(at.gradients.owns(0));
  EXPECT_FALSE(at.layout.known());
  at.gradients.add(0, 3, gradient_of(3), 1);
  EXPECT_TRUE(at.layout.known());
  EXPECT_EQ(at.gradients.todo(), (std::vector<int>{2}));
  at.gradients.add(/*step=*/1, 2, gradient_of(2), 1);
  at.gradients.add(0, 0, gradient_of(0), 1);
  EXPECT_EQ(at.gradients.todo(), (std::vector<int>{2})) << "of another step, and of another member";
  at.position.generation->first_step = 4;
  EXPECT_TRUE(at.gradients.todo().empty()) << "the generation has not begun";
}

TEST(StepGradients, AreContributedOnceTheShareIsComplete) {
  StepParts at(2, 1);
  at.gradients.add(0, 2, gradient_of(2), 1);
  at.gradients.contribute({});
  EXPECT_EQ(at.sent(), Sent{});
  at.gradients.add(0, 3, gradient_of(3), 1);
  at.position.promised = 2;
  at.gradients.contribute({});
  EXPECT_EQ(at.sent(), Sent{}) << "nor while it is fenced";
  at.position.promised = 1;
  at.position.proposed[5] = *at.position.generation;
  at.gradients.contribute(Digest{1, 2});
  EXPECT_EQ(at.sent(), (Sent{"contribution>1", "part>1"}));
  const auto* part = at.last.as<messages::TrailerPart>();
  ASSERT_TRUE(part);
  EXPECT_EQ(part->member, 1);
  EXPECT_EQ(part->held, 5) << "the newest generation that it knows";
  EXPECT_EQ(part->seconds, 1);
  EXPECT_EQ(part->facts.size(), 2u);
  EXPECT_EQ(part->state, (Digest{1, 2}));
}

TEST(StepGradients, OnlyTheLastOneIsOpened) {
  StepParts at(2, 1);
  at.layout.learn(gradient_of(0));
  EXPECT_FALSE(at.gradients.opens(2));
  at.gradients.add(0, 2, gradient_of(2), 1);
  EXPECT_TRUE(at.gradients.opens(3));
  const RankGradient last = gradient_of(3);
  at.gradients.open(0, 3, 1, last.batch_statistics);
  EXPECT_TRUE(at.gradients.has_open());
  at.gradients.put(0, last.gradients[0]);
  EXPECT_EQ(at.sent(), Sent{"contribution>1"}) << "the first bucket is complete while the backward pass continues";
  at.gradients.put(1, last.gradients[1]);
  at.gradients.add(0, 3, last, 1);
  EXPECT_FALSE(at.gradients.has_open());
  EXPECT_TRUE(at.gradients.todo().empty());
  StepParts alone(1, 0);
  alone.layout.learn(gradient_of(0));
  alone.gradients.add(0, 0, gradient_of(0), 1);
  EXPECT_FALSE(alone.gradients.opens(1)) << "no other member waits for it";
}

// Its passes would end in the middle, after they have contributed some of its buckets.
TEST(StepGradients, ThatLackParametersAreOfOneGeneration) {
  for (const int zero : {2, 3}) {
    StepParts at(2, 1, zero);
    const StepGradients::Begun begun = at.gradients.begun(2);
    EXPECT_FALSE(at.gradients.stale(2, begun));
    at.position.generation->number = 2;
    EXPECT_EQ(at.gradients.stale(2, begun), zero == 3);
  }
}

// In the first step in which parameters are to be whole again, they are still sharded.
TEST(StepGradients, ThatAreOpenWhereParametersAreShardedEndWithAFence) {
  for (const int zero_before : {1, 3}) {
    StepParts at(2, 1, /*zero=*/1);
    at.position.generation->sharding->zero_before = zero_before;
    at.layout.learn(gradient_of(0));
    at.gradients.add(0, 2, gradient_of(2), 1);
    at.gradients.open(0, 3, 1, gradient_of(3).batch_statistics);
    at.position.promised = 2;
    at.reduction.fence();
    at.gradients.fence();
    EXPECT_EQ(at.gradients.has_open(), zero_before == 1);
    EXPECT_EQ(at.reduction.keeps_none(), zero_before == 3);
  }
}

// Returns the number of messages that a rank gradient takes: one for each bucket that another member owns.
int contributions(const StepParts& at) {
  int others = 0;
  for (int b = 0; b < at.layout.shards(); ++b) others += at.shards.keepers(b)[0] != at.position.index;
  return others + (at.position.index != 1);  // member 1 owns the batch statistics, which are bucket 5
}

TEST(StepGradients, OfTheSecondStageOfZeroAreEachContributedAtOnce) {
  StepParts at(2, 1, /*zero=*/2);
  at.layout.learn(gradient_of(0));
  EXPECT_TRUE(at.gradients.opens(2)) << "although it is not the last one";
  const RankGradient first = gradient_of(2);
  at.gradients.open(0, 2, 1, first.batch_statistics);
  for (const int t : {1, 0}) at.gradients.put(t, first.gradients[static_cast<size_t>(t)]);
  EXPECT_EQ(at.sent(), Sent(static_cast<size_t>(contributions(at)), "contribution>1"));
  at.gradients.close(0, 2, {.facts = first.facts}, 1);
  EXPECT_EQ(at.gradients.todo(), (std::vector<int>{3}));
  at.gradients.add(0, 3, gradient_of(3), 1);
  EXPECT_EQ(at.sent(), Sent(static_cast<size_t>(contributions(at)), "contribution>1")) << "one that came whole";
  at.gradients.contribute({});
  EXPECT_EQ(at.sent(), Sent{}) << "the part waits for the sums that the member keeps";
  EXPECT_EQ(at.reduction.reduce(), StepReduction::Progress::waiting);
}

// With ZeRO a fenced member may learn of a commit, and listen, while its rank gradient is open.
TEST(StepGradients, AnOpenOneGoesIntoNoExchangeOfOthers) {
  StepParts at(2, 1, /*zero=*/1);
  at.layout.learn(gradient_of(0));
  at.gradients.add(0, 2, gradient_of(2), 1);
  const RankGradient open = gradient_of(3);
  at.gradients.open(0, 3, 1, open.batch_statistics);
  at.sent();
  at.position.promised = 2;
  at.reduction.fence();
  at.gradients.fence();
  at.reduction.listen();
  for (const int t : {1, 0}) at.gradients.put(t, open.gradients[static_cast<size_t>(t)]);
  at.gradients.add(0, 3, open, 1);
  EXPECT_EQ(at.sent(), Sent{});
  EXPECT_FALSE(at.gradients.has_open());
}

TEST(StepGradients, OfTheSecondStageOfZeroAreAllDroppedAtAFence) {
  StepParts at(2, 1, /*zero=*/2);
  at.layout.learn(gradient_of(0));
  at.gradients.add(0, 2, gradient_of(2), 1);
  const RankGradient open = gradient_of(3);
  at.gradients.open(0, 3, 1, open.batch_statistics);
  at.gradients.put(1, open.gradients[1]);
  at.sent();
  at.position.promised = 2;
  at.reduction.fence();
  at.gradients.fence();
  EXPECT_FALSE(at.gradients.has_open());
  EXPECT_TRUE(at.gradients.todo().empty()) << "nothing is computed before the next generation";
  EXPECT_FALSE(at.gradients.opens(3));
  at.gradients.put(0, open.gradients[0]);
  at.gradients.add(0, 2, gradient_of(2), 1);
  at.position.generation->number = 2;  // it has begun before the interrupted one ends
  at.gradients.put(0, open.gradients[0]);
  at.gradients.close(0, 3, {.facts = open.facts}, 1);
  EXPECT_EQ(at.sent(), Sent{});
  EXPECT_EQ(at.gradients.todo(), (std::vector<int>{2, 3}));
  at.gradients.open(0, 3, 1, open.batch_statistics);
  for (const int t : {0, 1}) at.gradients.put(t, open.gradients[static_cast<size_t>(t)]);
  at.gradients.close(0, 3, {.facts = open.facts}, 1);
  EXPECT_EQ(at.sent(), Sent(static_cast<size_t>(contributions(at)), "contribution>1"));
  EXPECT_EQ(at.gradients.todo(), (std::vector<int>{2}));
}

TEST(StepGradients, AMemberAloneMovesThemToTheCpuOnce) {
  StepParts alone(1, 0), two(2, 0);
  EXPECT_TRUE(alone.gradients.stay_on_device());
  EXPECT_TRUE(alone.gradients.move_to_cpu());
  EXPECT_FALSE(alone.gradients.stay_on_device());
  EXPECT_FALSE(alone.gradients.move_to_cpu()) << "there is nothing more to move";
  EXPECT_FALSE(two.gradients.stay_on_device()) << "without a group they are reduced on the CPU";
  EXPECT_FALSE(two.gradients.move_to_cpu());
}

TEST(StepGradients, TheStateIsDigestedOnScheduleAndAtTheEnd) {
  std::vector<int64_t> due;
  for (int64_t step = 0; step <= 10; ++step) {
    StepParts at;
    at.position.step = at.position.completed = step;
    if (at.gradients.digest_due()) due.push_back(step);
  }
  EXPECT_EQ(due, (std::vector<int64_t>{3, 4, 6, 8, 9, 10}));
}

}  // namespace
}  // namespace elinvar
