#include "elastic/protocol/step_reduction.h"

#include <gtest/gtest.h>

#include "tests/elastic/step_parts.h"

namespace elinvar {
namespace {

using test::gradient_of;
using test::Sent;
using test::StepParts;
using Progress = StepReduction::Progress;

TEST(StepReduction, AMemberAloneHasTheMeanOfAll) {
  StepParts at(1, 0);
  for (const int v : {0, 1}) at.gradients.add(0, v, gradient_of(v), 1);
  EXPECT_EQ(at.reduction.reduce(), Progress::abandoned) << "nothing is contributed yet";
  at.gradients.contribute({});
  ASSERT_EQ(at.reduction.reduce(), Progress::complete);
  EXPECT_EQ(at.reduction.take().samples, 2);
  const Reduced reduced = at.reduction.take_reduced();
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

TEST(StepReduction, WaitsForTheOthersContributions) {
  StepParts at(2, 1);
  for (const int v : {2, 3}) at.gradients.add(0, v, gradient_of(v), 1);
  at.gradients.contribute({});
  EXPECT_EQ(at.sent(), (Sent{"contribution>1", "part>1"})) << "the second bucket is its own";
  EXPECT_EQ(at.reduction.reduce(), Progress::waiting);
  EXPECT_NE(at.reduction.missing(), "");
  EXPECT_EQ(at.reduction.group_progress(), std::nullopt);
}

TEST(StepReduction, AListenerOwesNothing) {
  StepParts at(2, 1);
  at.reduction.listen();
  EXPECT_EQ(at.reduction.reduce(), Progress::abandoned) << "the layout is not known";
  at.layout.learn(gradient_of(0));
  at.reduction.listen();
  EXPECT_EQ(at.reduction.reduce(), Progress::waiting);
  EXPECT_EQ(at.sent(), Sent{});
}

}  // namespace
}  // namespace elinvar
