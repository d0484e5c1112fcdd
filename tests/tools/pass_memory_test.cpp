#include "tools/training/pass_memory.h"

#include <gtest/gtest.h>

namespace elinvar {
namespace {

constexpr int64_t kHeld = 1000, kMore = 50, kGradient = 7;

// Equal segments. Each has a parameter, and the last one also reads that of the first if they are tied.
NetworkNeeds network_of(int segments, bool tied) {
  NetworkNeeds needs;
  needs.memory.parts = TensorParts{.gradients = {}};
  for (int i = 0; i < segments; ++i) {
    SegmentNeeds& segment = needs.segments.emplace_back();
    segment.held.common = kHeld;
    segment.more.common = kMore;
    needs.memory.parameters.push_back({kGradient});
    needs.memory.parts->gradients.push_back({.segment = tied && i == 0 ? segments - 1 : i});
    needs.first_readers.push_back(i);
  }
  return needs;
}

ReplicaPlace stage(int number, std::vector<Interval> segments) {
  return {.stage = number, .segments = std::move(segments)};
}

constexpr int64_t kTensor = kGradient * 4;

TEST(PassMemory, WithoutAPipelineRankGradientsAreAlike) {
  EXPECT_EQ(pass_bytes(network_of(3, false), {}, {}, 2, 0), std::vector<int64_t>(2, 3 * kHeld + kMore + kTensor))
      << "in the last segment's pass; all gradients at the end are less";
  EXPECT_EQ(pass_bytes(network_of(3, false), {}, {}, 0, 0).size(), 1u);
}

TEST(PassMemory, TheFirstStageHasOneRankGradientBetweenItsPassesAtTheEnd) {
  const std::vector<ReplicaPlace> replica = {stage(0, {{0, 2}}), stage(1, {{2, 4}})};
  const NetworkNeeds needs = network_of(4, false);
  const int64_t alone = 2 * kHeld + kMore + kTensor;
  EXPECT_EQ(pass_bytes(needs, replica, replica[0], 3, 0),
            (std::vector<int64_t>{alone + 2 * kHeld, alone + 2 * kHeld, alone}));
  EXPECT_EQ(pass_bytes(needs, replica, replica[1], 3, 0), std::vector<int64_t>(3, alone));
}

// The stage of the head also has the first segment, whose backward pass is the last of a rank gradient. Until then it
// has the gradients of the head, and meanwhile others begin.
TEST(PassMemory, AStageOfTwoRunsHasGradientsOfSeveralRankGradients) {
  const std::vector<ReplicaPlace> replica = {stage(0, {{1, 3}}), stage(1, {{0, 1}, {3, 4}})};
  const std::vector<int64_t> one = pass_bytes(network_of(4, true), replica, replica[1], 1, 0);
  EXPECT_EQ(one, std::vector<int64_t>{2 * kHeld + kMore + 2 * kTensor}) << "the head's pass makes both gradients";
  const std::vector<int64_t> several = pass_bytes(network_of(4, true), replica, replica[1], 4, 0);
  ASSERT_EQ(several.size(), 4u);
  // The first segment is between its passes for three rank gradients, and the head's gradients of one stay.
  EXPECT_GT(several[0], one[0] + kHeld);
  EXPECT_EQ(several[3], kHeld + kMore + 3 * kTensor) << "the first segment adds its own to the head's";
}

TEST(PassMemory, ATiedGradientStaysUntilItsFirstReader) {
  const NetworkNeeds tied = network_of(4, true), untied = network_of(4, false);
  // ZeRO-2 sends the others while the next segment makes its own, so the pass of segment 2 has those of 2 and 3.
  EXPECT_EQ(pass_bytes(untied, {}, {}, 1, 2), std::vector<int64_t>{4 * kHeld + kMore + kTensor});
  EXPECT_EQ(pass_bytes(tied, {}, {}, 1, 2), std::vector<int64_t>{4 * kHeld + kMore + 2 * kTensor});
}

}  // namespace
}  // namespace elinvar
