// Which generations form groups of GPUs, which groups they are made from, and the consequences of failures.
// coordinator_groups_test.cpp tests why workers cannot be a group.
#include "elastic/protocol/group_planner.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/elastic/coordinated_job.h"

namespace elinvar {
namespace {

using test::CoordinatedJob;
using test::from;

struct PlannedGroups : testing::Test {
  PlannedGroups() {
    job.run({1, 2, 3});
    job.state.current->group = true;
    for (auto& [peer, w] : job.state.workers)
      w.about.nccl = {.why_not = "", .version = "2.28", .place = std::to_string(peer), .shrinks = true};
  }
  Generation next(const std::vector<PeerId>& members) {
    Generation g = CoordinatedJob::generation(2, members);
    g.group = groups.why_none(g).empty();
    return g;
  }
  FenceReason fails(PeerId peer, int64_t generation) {
    return groups.failed(job.state.workers.at(peer), from(peer, generation), messages::GroupFailed{"a link is down"});
  }
  CoordinatedJob job;
  GroupPlanner groups{job.state};
};

TEST_F(PlannedGroups, APlannedOneIsMadeFromOneThatHasMadeAStep) {
  EXPECT_EQ(groups.source_of_planned(next({1, 2})), std::nullopt);
  groups.used(from(1, 1), {"new"});
  EXPECT_EQ(groups.source_of_planned(next({1, 2})), 1);
  job.add(4).about = job.state.workers.at(1).about;
  job.state.workers.at(4).about.nccl.place = "4";
  EXPECT_EQ(groups.source_of_planned(next({1, 2, 3, 4})), std::nullopt) << "4 is not in it";
  job.state.workers.at(2).about.nccl.shrinks = false;
  EXPECT_EQ(groups.source_of_planned(next({1, 2})), std::nullopt);
  EXPECT_EQ(groups.source_of_planned(next({1, 2, 3})), 1) << "with the same members it goes on as it is";
  job.state.workers.at(2).about.nccl.version = "2.18";
  EXPECT_EQ(groups.source_of_planned(next({1, 2, 3})), std::nullopt);
}

TEST_F(PlannedGroups, ARecoveredOneIsMadeFromOneThatIsWholeEverywhere) {
  job.state.workers.at(1).fenced = messages::Fenced{.group = 1};
  job.state.workers.at(2).fenced = messages::Fenced{.group = 1};
  EXPECT_EQ(groups.source_of_recovered(next({1, 2})), 1);
  job.state.workers.at(2).fenced->group = 0;
  EXPECT_EQ(groups.source_of_recovered(next({1, 2})), std::nullopt) << "in the middle of a transfer";
  job.state.workers.at(2).fenced->group = 7;
  EXPECT_EQ(groups.source_of_recovered(next({1, 2})), std::nullopt);
}

TEST_F(PlannedGroups, AreGivenUpAfterThreeFailuresWithoutAnExcuse) {
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(fails(2, 1), "the group of GPUs failed: worker 2: a link is down");
    groups.excuse_failure();  // a death
    groups.fence_answered();
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(groups.why_none(next({1, 2})), "");
    (void)fails(2, 1);
    groups.fence_answered();
    groups.fence_answered();  // another fence, for another reason
  }
  EXPECT_EQ(groups.why_none(next({1, 2})), "groups have failed 3 times, at last: worker 2: a link is down");
}

TEST_F(PlannedGroups, AFailureOfAGenerationThatIsOverNeedsNoFence) {
  job.state.current = next({1, 2});
  job.state.current->follows = 1;
  EXPECT_TRUE(fails(1, 2));
  EXPECT_FALSE(fails(3, 1)) << "it is in the new generation no more";
  EXPECT_TRUE(fails(2, 1)) << "it lacks the step that the others have made";
  job.state.workers.at(2).generation = 2;
  EXPECT_FALSE(fails(2, 1));
  job.state.phase = JobState::Phase::fencing;
  EXPECT_FALSE(fails(1, 2));
}

TEST_F(PlannedGroups, PeopleAreToldWhatCarriesTheTensors) {
  const auto plane = [&] { return groups.data_plane().value("reason", "nccl"); };
  EXPECT_EQ(plane(), "the group is being formed");
  groups.missing(job.state.workers.at(3), {.of = 9, .reason = "of no generation that is known"});
  EXPECT_EQ(plane(), "the group is being formed");
  groups.missing(job.state.workers.at(3), {.of = 1, .reason = "no network"});
  EXPECT_EQ(plane(), "worker 3: no network");
  groups.created(*job.state.current);
  EXPECT_EQ(plane(), "the group is being formed");
  groups.used(from(1, 1), {"new"});
  groups.used(from(1, 1), {"new"});
  EXPECT_EQ(plane(), "nccl");
  EXPECT_EQ(job.count("data_plane"), 2) << "missing, and used once";
  job.state.current = next({1});
  EXPECT_EQ(plane(), "a worker alone sends nothing");
}

// Members of a model replica exchange values also where gradients go through the hosts.
TEST_F(PlannedGroups, CarryTheValuesOfModelReplicas) {
  Generation g = next({1, 2, 3});
  EXPECT_EQ(groups.why_none(g), "") << "it adds up gradients";
  g.sharding.emplace();
  EXPECT_EQ(groups.why_none(g), "") << "of whole rank gradients";
  g.sharding->zero = 2;
  EXPECT_EQ(groups.why_none(g), "") << "it carries parameters";
  g.sharding->zero = 3;
  EXPECT_EQ(groups.why_none(g), "gradients are sharded");
  g.shards = 2;
  for (size_t m = 0; m < 3; ++m) g.members[m].place = {.shards = {0, 2}, .stage = static_cast<int>(m)};
  EXPECT_EQ(groups.why_none(g), "") << "values between stages";
  for (size_t m = 0; m < 2; ++m) g.members[m].place = {.shards = {static_cast<int>(m), static_cast<int>(m) + 1}};
  EXPECT_EQ(groups.why_none(g), "") << "values of shards";
  job.state.workers.at(3).about.nccl.why_not = "it computes on the CPU";
  EXPECT_EQ(groups.why_none(g), "worker 3 has no NCCL: it computes on the CPU");
  g.group = false;
  job.state.current = g;
  const auto host = [](const std::string& reason) { return nlohmann::json{{"kind", "host"}, {"reason", reason}}; };
  const auto planes = [&](const nlohmann::json& within) {
    nlohmann::json plane = host("gradients are sharded");
    plane["within"] = within;
    return plane;
  };
  EXPECT_EQ(groups.data_plane(), planes(host("worker 3 has no NCCL: it computes on the CPU")));
  job.state.current->group = true;
  EXPECT_EQ(groups.data_plane(), planes(host("the group is being formed")));
  groups.used(from(1, 2), {"new"});
  const nlohmann::json nccl = {{"kind", "nccl"}};
  EXPECT_EQ(groups.data_plane(), planes(nccl));
  job.state.current->sharding->zero = 2;
  EXPECT_EQ(groups.data_plane().at("parameters"), nccl);
}

}  // namespace
}  // namespace elinvar
