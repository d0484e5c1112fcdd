// Segments that do the same are measured once.
#include "nn/segment_measurement.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/models/segment_cases.h"

namespace elinvar {
namespace {

std::vector<MeasuredSegment> measure(const SegmentedNetwork& network, const Inputs& input, const Tensor& target,
                                     const SegmentTrials& trials) {
  return measure_segments(network, input, Targets(target), {}, {.seed = 1}, {}, trials);
}

// Runs take different times, even of the same work.
bool measured_once(const MeasuredSegment& a, const MeasuredSegment& b) {
  return a.seconds == b.seconds && a.forward == b.forward;
}

TEST(SegmentMeasurement, IterationsOfARepeatRunOnce) {
  const auto cases = cut_cases();
  const CutNetwork built(*std::ranges::find(cases, std::string("layers"), &CutCase::name));
  const auto measured = measure(built.segmented(), built.input, built.target, {});
  ASSERT_EQ(built.segmented().segments()[3].name, "2.1");
  EXPECT_TRUE(measured_once(measured[2], measured[3]));
  EXPECT_FALSE(measured_once(measured[1], measured[2]));
  EXPECT_FALSE(measured_once(measured[3], measured[4]));
}

TEST(SegmentMeasurement, BatchNormsRunOnceUnlessTheirStatisticsAreWanted) {
  const Spec conv = table("conv2d", {{"out", int64_t{6}}});
  const Spec layers = table(
      "layers", {},
      {conv, table("repeat", {{"times", int64_t{3}}}, {conv, table("batch_norm")}), table("flatten"), table("linear")});
  const auto network = build(layers, {.sample = {32, 32, 3}, .classes = 5}, 1);
  const auto& segmented = dynamic_cast<const SegmentedNetwork&>(*network);
  const Tensor input = elinvar::images(3, 32), target = integers<int64_t>("target", {3}, 5);
  const auto needed = measure(segmented, input, target, {.statistics = false});
  EXPECT_TRUE(measured_once(needed[1], needed[2]));
  EXPECT_TRUE(measured_once(needed[1], needed[3]));
  const auto all = measure(segmented, input, target, {});
  EXPECT_NE(all[1].statistics.at(0).running_mean, all[2].statistics.at(0).running_mean);
}

TEST(SegmentMeasurement, BriefSegmentsRunSeveralTimes) {
  const auto cases = cut_cases();
  const CutNetwork built(*std::ranges::find(cases, std::string("gpt"), &CutCase::name));
  const auto runs_of = [&](const SegmentTrials& like) {
    int calls = 0;  // before each run, and after the first
    SegmentTrials trials = like;
    trials.greatest = [&](double value) {
      ++calls;
      return value;
    };
    (void)measure(built.segmented(), built.input, built.target, trials);
    return calls;
  };
  // The embeddings, a block and the head.
  EXPECT_EQ(runs_of({.runs = 1, .brief = 1e9}), 3 * (2 + 1));
  EXPECT_EQ(runs_of({.runs = 4, .brief = 1e9}), 3 * (5 + 1));
  EXPECT_EQ(runs_of({.runs = 4, .brief = 0}), 3 * (2 + 1));
}

}  // namespace
}  // namespace elinvar
