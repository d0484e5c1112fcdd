// The consequences of the claims about an audited step.
#include "elastic/protocol/audit_trials.h"

#include <gtest/gtest.h>

#include "tests/elastic/coordinated_job.h"

namespace elinvar {
namespace {

using test::CoordinatedJob;
using test::from;
using Stage = Evidence::Stage;

const SumClaim kClaim{{1, 1}, {2, 2}}, kOtherClaim{{3, 3}, {4, 4}}, kWrongClaim{{1, 1}, {5, 5}};

// The claims of workers 1, 2, ... about bucket 0 of a step.
Evidence evidence(Stage stage, const std::vector<std::vector<SumClaim>>& claims, int64_t step = 6) {
  Evidence e{.stage = stage, .step = step, .vrank = 0, .bucket = 0, .witnesses = {}, .received = {}};
  for (size_t i = 0; i < claims.size(); ++i)
    e.witnesses.push_back({static_cast<int>(i) + 1, {.states = {}, .leaves = {}, .sums = claims[i]}});
  return e;
}

struct TrialsAfterAnAudit : testing::Test {
  TrialsAfterAnAudit() { job.run({1, 2}); }
  std::optional<AuditTrials::Consequence> examine(const Evidence& e, int64_t generation = 1) {
    return trials.examine(from(1, generation), e, /*agreed_state=*/4);
  }
  CoordinatedJob job;
  AuditTrials trials{job.state};
};

TEST_F(TrialsAfterAnAudit, OfAGenerationThatIsOverAreNotHeard) {
  EXPECT_FALSE(examine(evidence(Stage::audit, {{kClaim}, {kOtherClaim}}), 0));
  job.state.phase = JobState::Phase::fencing;
  EXPECT_FALSE(examine(evidence(Stage::audit, {{kClaim}, {kOtherClaim}})));
  EXPECT_TRUE(job.world.events.empty());
}

TEST_F(TrialsAfterAnAudit, AMemberThatContradictsItselfIsGuilty) {
  const auto consequence = examine(evidence(Stage::audit, {{kClaim}, {kClaim, kWrongClaim}}));
  ASSERT_TRUE(consequence);
  EXPECT_EQ(consequence->guilty, test::Peers{2});
  EXPECT_FALSE(consequence->fence);
  EXPECT_FALSE(trials.trial());
  const auto& event = job.world.events.at(0).second;
  EXPECT_EQ(event.at("workers"), nlohmann::json({2}));
  EXPECT_EQ(event.at("states_agreed_after"), 4);
  EXPECT_EQ(event.at("machines").at(0).at("peer"), 2);
}

TEST_F(TrialsAfterAnAudit, WithoutAnybodyLeftTheRunEnds) {
  EXPECT_FALSE(examine(evidence(Stage::audit, {{kClaim, kWrongClaim}, {kClaim, kWrongClaim}})));
  ASSERT_TRUE(job.state.ending);
  EXPECT_NE(job.state.ending->reason.find("without workers 1 and 2"), std::string::npos);
}

TEST_F(TrialsAfterAnAudit, ADifferenceIsTriedByThoseThatWereAtTheStep) {
  EXPECT_TRUE(examine(evidence(Stage::audit, {{kClaim}, {kOtherClaim}}))->fence);
  Recovery recovery{.step = 6, .members = {1, 2, 7}};
  trials.choose_witnesses(recovery);
  EXPECT_EQ(recovery.members, (std::vector<PeerId>{1, 2})) << "7 has learnt the state from them";
  ASSERT_TRUE(trials.trial());
  EXPECT_FALSE(trials.trial()->replay);
  trials.begun();
  EXPECT_FALSE(trials.trial());
}

TEST_F(TrialsAfterAnAudit, ADoubtIsDroppedWhereTheStepOrItsWitnessesAreGone) {
  const auto remains = [&](int64_t step, std::vector<PeerId> members) {
    (void)examine(evidence(Stage::audit, {{kClaim}, {kOtherClaim}}));
    Recovery recovery{.step = step, .members = members};
    trials.choose_witnesses(recovery);
    EXPECT_TRUE(trials.trial() || recovery.members == members);
    return trials.trial().has_value();
  };
  EXPECT_TRUE(remains(6, {1, 2}));
  EXPECT_FALSE(remains(7, {1, 2}));
  EXPECT_FALSE(remains(6, {1, 7}));
}

TEST_F(TrialsAfterAnAudit, OneThatDecidesNothingIsFollowedByAReplayFromACheckpoint) {
  const Evidence undecided = evidence(Stage::trial, {{kClaim}, {kWrongClaim}});
  EXPECT_TRUE(examine(undecided)->fence);
  EXPECT_EQ(trials.trial()->replay, 3) << "the newest checkpoint";
  EXPECT_TRUE(examine(evidence(Stage::trial, {{kClaim}, {kClaim}}))->fence);
  EXPECT_FALSE(trials.trial()) << "the difference did not come again";
}

TEST(TrialsOfAnAdaptiveRun, HaveNothingToCompareAReplayWith) {
  CoordinatedJob job({.scaling = {.batch = 8, .batch_max = 8}});
  job.run({1, 2});
  AuditTrials trials(job.state);
  EXPECT_FALSE(trials.examine(from(1, 1), evidence(Stage::trial, {{kClaim}, {kWrongClaim}}), 0));
  EXPECT_TRUE(job.state.ending);
}

// Members that share the optimizer's state have no room for a replay.
struct TrialsOfAShardedRun : testing::Test {
  TrialsOfAShardedRun() { job.run({1, 2, 3}); }
  std::optional<AuditTrials::Consequence> examine(const std::vector<Digest>& states, int64_t step = 6) {
    Evidence e{.stage = Stage::trial, .step = step, .vrank = 0, .bucket = -1, .witnesses = {}, .received = {}};
    for (size_t i = 0; i < states.size(); ++i)
      e.witnesses.push_back({static_cast<int>(i) + 1, {.states = {states[i]}, .leaves = {}, .sums = {}}});
    return trials.examine(from(1, 1), e, /*agreed_state=*/4);
  }
  CoordinatedJob job{{.arrangement = {.zero = 1, .copies = 2}}};
  AuditTrials trials{job.state};
};
const Digest kState{1, 1}, kOtherState{2, 2};

TEST_F(TrialsOfAShardedRun, OfStatesThatDifferAreFollowedByACheckpointThatAllRestore) {
  const auto consequence = examine({kState, kOtherState, kOtherState});
  ASSERT_TRUE(consequence && consequence->fence);
  EXPECT_TRUE(consequence->guilty.empty());
  EXPECT_TRUE(trials.restores({.step = 6}));
  EXPECT_FALSE(trials.restores({.step = 7})) << "the step was completed";
  const auto& event = job.world.events.at(0).second;
  EXPECT_EQ(event.at("verdict"), name_of(Verdict::What::restore));
  EXPECT_EQ(event.at("workers"), nlohmann::json({1, 2, 3}));
  trials.begun();
  EXPECT_FALSE(trials.restores({.step = 6}));
}

TEST_F(TrialsOfAShardedRun, EndTheRunIfADifferenceComesBeforeAnotherCheckpoint) {
  EXPECT_TRUE(examine({kState, kOtherState, kOtherState}));
  EXPECT_FALSE(examine({kState, kState, kOtherState}, /*step=*/7));
  ASSERT_TRUE(job.state.ending);
  EXPECT_NE(job.state.ending->reason.find("without workers 1 and 2 and 3"), std::string::npos);
}

TEST_F(TrialsOfAShardedRun, OverOtherDifferencesEndTheRunAtOnce) {
  EXPECT_FALSE(trials.examine(from(1, 1), evidence(Stage::trial, {{kClaim}, {kWrongClaim}}), 0));
  ASSERT_TRUE(job.state.ending);
}

TEST_F(TrialsAfterAnAudit, AreNotRepeatedForEver) {
  const Evidence again = evidence(Stage::trial, {{kClaim}, {kOtherClaim}});
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(examine(again)) << i;
  EXPECT_TRUE(examine(evidence(Stage::trial, {{kClaim}, {kOtherClaim}}, /*step=*/9))) << "another step counts anew";
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(examine(again)) << i;
  EXPECT_FALSE(examine(again));
  ASSERT_TRUE(job.state.ending);
  EXPECT_NE(job.state.ending->reason.find("10 tries have led to no verdict"), std::string::npos);
}

}  // namespace
}  // namespace elinvar
