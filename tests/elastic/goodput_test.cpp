#include "elastic/ledger/goodput.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace elinvar {
namespace {

using Cause = Goodput::Cause;

TEST(Goodput, LosesWhatAnIntervalTookBeyondAUsualStep) {
  Goodput goodput(100);
  double now = 103;
  goodput.step(now, 1);  // the start: the usual time of a step is not known yet
  for (int i = 0; i < 10; ++i) goodput.step(now += 0.5, 1);
  goodput.note(Cause::checkpointing);
  goodput.step(now += 0.75, 1);
  goodput.note(Cause::changing);
  goodput.note(Cause::recovering);  // the graver cause counts
  goodput.step(now += 2.5, 2);
  goodput.finish(now += 1);

  const auto summary = goodput.summary(now + 50);  // time after the end does not count
  EXPECT_DOUBLE_EQ(summary["seconds"].get<double>(), 3 + 5 + 0.75 + 2.5 + 1);
  EXPECT_DOUBLE_EQ(summary["training"].get<double>(), 12 * 0.5);
  EXPECT_DOUBLE_EQ(summary["goodput"].get<double>(), 6 / 12.25);
  EXPECT_EQ(summary["lost"].dump(),
            R"({"starting":{"seconds":3.0,"times":1},"recovering":{"seconds":2.0,"times":1},)"
            R"("checkpointing":{"seconds":0.25,"times":1},"finishing":{"seconds":1.0,"times":1}})");
}

TEST(Goodput, KnowsTheUsualStepOfTheMembersThatThereAre) {
  Goodput goodput(0);
  double now = 0;
  goodput.step(now, 1);
  for (int i = 0; i < 40; ++i) goodput.step(now += 1, 1);
  goodput.note(Cause::changing);
  goodput.step(now += 1, 2);  // as usual: no time is lost
  for (int i = 0; i < 3; ++i) goodput.step(now += 0.25, 2);
  goodput.note(Cause::evaluating);
  goodput.step(now += 1, 2);
  const auto lost = goodput.summary(now)["lost"];
  EXPECT_EQ(lost["changing"]["seconds"], 0.0);
  EXPECT_EQ(lost["evaluating"]["seconds"], 0.75);
}

// Steps are reported a little later than causes: a cause noted after a step does not belong to it.
TEST(Goodput, ACauseCountsFromWhenItCame) {
  Goodput goodput(0);
  double now = 0;
  goodput.step(now, 1);
  for (int i = 0; i < 10; ++i) goodput.step(now += 1, 1);
  goodput.note(Cause::changing, now + 1.5);
  goodput.note(Cause::recovering, now + 7);
  goodput.step(now += 1, 1);
  goodput.step(now += 4, 1);
  EXPECT_EQ(goodput.summary(now)["lost"]["changing"]["seconds"], 3.0);
  EXPECT_FALSE(goodput.summary(now)["lost"].contains("recovering"));
  goodput.step(now += 2, 1);
  goodput.step(now += 2, 1);
  EXPECT_EQ(goodput.summary(now)["lost"]["recovering"]["seconds"], 1.0);
}

TEST(Goodput, ASlowStepWithoutACauseIsTraining) {
  Goodput goodput(0);
  goodput.step(0, 1);
  goodput.step(1, 1);
  goodput.step(9, 1);
  EXPECT_EQ(goodput.share(9), 1.0);
}

}  // namespace
}  // namespace elinvar
