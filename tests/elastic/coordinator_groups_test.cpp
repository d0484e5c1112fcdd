// The coordinator's decisions about groups of GPUs (PROTOCOL.md, "Groups of GPUs"): which generations form a group, and
// from which other group it is made.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "elastic/protocol/coordinator.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;

// A coordinator to which workers come one after another, with its records and messages.
struct World final : CoordinatorWorld {
  std::vector<Generation> records;
  std::vector<std::pair<std::string, Json>> events;
  bool create(const Generation& g) override {
    records.push_back(g);
    return true;
  }
  bool superseded() override { return false; }
  std::optional<int64_t> facts(const std::vector<StepFacts>& steps) override { return steps.back().step; }
  int64_t restart() override { return 0; }
  void event(const std::string& name, const Json& fields) override { events.emplace_back(name, fields); }
  void evict(PeerId) override {}
  std::string refuse(const messages::Hello&) override { return ""; }
};

struct GroupedJob {
  explicit GroupedJob(const std::vector<NcclSupport>& nccl)
      : coordinator({.steps = 100, .initial_workers = static_cast<int>(nccl.size())}, world, 0, {}, 0) {
    for (size_t i = 0; i < nccl.size(); ++i) {
      const PeerId peer = 10 + i;
      tell(peer, 0, messages::Hello{.about = {.endpoint = "e", .nccl = nccl[i]}});
      tell(peer, 0, messages::Ready{.attempt = 0});
    }
  }
  void tell(PeerId peer, int64_t generation, Payload payload) {
    coordinator.receive({.sender = peer, .generation = generation, .payload = std::move(payload)}, 0);
  }
  // `groups` gives the group that each member is in, with nothing in transfer; 0: none.
  void answer_fences(const std::map<PeerId, int64_t>& groups = {}) {
    for (const Action& action : coordinator.take_actions())
      if (action.message.as<messages::Fence>())
        tell(action.peer, 1,
             messages::Fenced{.promised = action.message.generation,
                              .active = true,
                              .loaded = true,
                              .keeps = true,
                              .group = groups.contains(action.peer) ? groups.at(action.peer) : 0});
  }
  std::string reason() const { return coordinator.status(0).at("data_plane").value("reason", ""); }

  World world;
  Coordinator coordinator;
};

NcclSupport gpu(const std::string& place, const std::string& version = "NCCL 2.28.9") {
  return {.why_not = "", .version = version, .place = place};
}

TEST(CoordinatorGroups, AreOfGpusThatAllHaveOneOfTheirOwn) {
  const auto reason = [](const std::vector<NcclSupport>& nccl) {
    const GroupedJob job(nccl);
    EXPECT_EQ(job.world.records.size(), 1u);
    const bool group = job.world.records.at(0).group;
    EXPECT_EQ(generation_from(to_json(job.world.records[0])).group, group);
    EXPECT_EQ(job.coordinator.status(0).at("data_plane").at("kind"), "host") << "nobody has used it yet";
    return (group ? "a group: " : "none: ") + job.reason();
  };
  EXPECT_EQ(reason({gpu("a"), gpu("b")}), "a group: the group is being formed");
  EXPECT_EQ(reason({gpu("a")}), "none: a worker alone sends nothing");
  EXPECT_EQ(reason({gpu("a"), {.why_not = "it computes on the CPU"}}),
            "none: worker 2 has no NCCL: it computes on the CPU");
  EXPECT_EQ(reason({gpu("a"), {}}), "none: worker 2 has no NCCL: it says nothing of NCCL");
  EXPECT_EQ(reason({gpu("a"), gpu("b"), gpu("a")}), "none: workers 1 and 3 share a");
  EXPECT_EQ(reason({gpu("a"), gpu("b", "NCCL 2.27.3")}), "none: worker 2 has NCCL 2.27.3, others have NCCL 2.28.9");
}

TEST(CoordinatorGroups, OneThatFailsIsMadeAgainAFewTimes) {
  GroupedJob job({gpu("a"), gpu("b")});
  job.tell(10, 1, messages::GroupMissing{.of = 1, .reason = "no network"});
  EXPECT_EQ(job.reason(), "worker 1: no network");
  EXPECT_EQ(job.world.records.size(), 1u) << "the hosts stand in";
  job.tell(10, 1, messages::GroupUsed{"new"});
  EXPECT_EQ(job.coordinator.status(0).at("data_plane"), Json({{"kind", "nccl"}}));
  job.tell(11, 1, messages::GroupUsed{"new"});
  const auto told = [&](const std::string& name) {
    return std::count_if(job.world.events.begin(), job.world.events.end(),
                         [&](const auto& e) { return e.first == name; });
  };
  EXPECT_EQ(told("data_plane"), 2);
  for (int failures = 1; failures <= 3; ++failures) {
    const int64_t number = job.world.records.back().number;
    EXPECT_TRUE(job.world.records.back().group);
    job.tell(11, number - 1, messages::GroupFailed{"of a generation that is over"});
    (void)job.coordinator.take_actions();
    job.tell(11, number, messages::GroupFailed{"a link is down"});
    EXPECT_EQ(told("fence"), failures);
    job.tell(10, number, messages::GroupFailed{"the same, found by another"});
    job.answer_fences();
    ASSERT_EQ(job.world.records.size(), static_cast<size_t>(failures) + 1);
  }
  EXPECT_FALSE(job.world.records.back().group);
  EXPECT_EQ(job.reason(), "groups have failed 3 times, at last: worker 2: a link is down");
}

TEST(CoordinatorGroups, WhatADeathBreaksIsNoFailure) {
  GroupedJob job({gpu("a"), gpu("b"), gpu("c"), gpu("d"), gpu("e"), gpu("f")});
  for (PeerId dead = 15; dead > 11; --dead) {
    const int64_t number = job.world.records.back().number;
    (void)job.coordinator.take_actions();
    job.tell(10, number, messages::GroupFailed{"a peer is gone"});
    job.coordinator.lost(dead, "killed", 0);
    job.answer_fences();
    ASSERT_GT(job.world.records.back().number, number);
    EXPECT_TRUE(job.world.records.back().group);
  }
}

NcclSupport shrinking_gpu(const std::string& place) {
  NcclSupport support = gpu(place);
  support.shrinks = true;
  return support;
}

// A new generation's group is made from the previous one if all members that continue are in that group and it is
// whole.
TEST(CoordinatorGroups, AreMadeFromTheOneBeforeWhereThatIsWhole) {
  const auto after_leave = [](const std::vector<NcclSupport>& nccl, bool used) {
    GroupedJob job(nccl);
    if (used) job.tell(10, 1, messages::GroupUsed{"new"});
    EXPECT_EQ(job.coordinator.drain(3, 0), "");
    job.coordinator.tick(0);
    EXPECT_EQ(job.world.records.size(), 2u);
    const Generation& next = job.world.records.back();
    EXPECT_EQ(generation_from(to_json(next)).group_from, next.group_from);
    return next.group_from;
  };
  EXPECT_EQ(after_leave({shrinking_gpu("a"), shrinking_gpu("b"), shrinking_gpu("c")}, true), 1);
  EXPECT_EQ(after_leave({shrinking_gpu("a"), shrinking_gpu("b"), shrinking_gpu("c")}, false), std::nullopt);
  EXPECT_EQ(after_leave({shrinking_gpu("a"), gpu("b"), gpu("c")}, true), std::nullopt) << "the library is too old";

  const auto after_death = [](const std::map<PeerId, int64_t>& groups, bool shrinks = true) {
    GroupedJob job(
        {shrinks ? shrinking_gpu("a") : gpu("a"), shrinking_gpu("b"), shrinking_gpu("c"), shrinking_gpu("d")});
    (void)job.coordinator.take_actions();
    job.coordinator.lost(13, "killed", 0);
    job.answer_fences(groups);
    EXPECT_EQ(job.world.records.size(), 2u);
    return job.world.records.back().group_from;
  };
  EXPECT_EQ(after_death({{10, 1}, {11, 1}, {12, 1}}), 1);
  EXPECT_EQ(after_death({{10, 1}, {11, 1}}), std::nullopt) << "in the middle of a transfer";
  EXPECT_EQ(after_death({{10, 1}, {11, 1}, {12, 7}}), std::nullopt);
  EXPECT_EQ(after_death({}), std::nullopt);
  EXPECT_EQ(after_death({{10, 1}, {11, 1}, {12, 1}}, false), std::nullopt);
}

TEST(CoordinatorGroups, OfTheSameMembersGoOnWhateverTheLibrary) {
  GroupedJob job({gpu("a"), gpu("b")});
  job.tell(10, 1, messages::GroupUsed{"new"});
  job.coordinator.ask_checkpoint(0);
  job.coordinator.tick(0);
  ASSERT_EQ(job.world.records.size(), 2u);
  EXPECT_EQ(job.world.records.back().group_from, 1);
}

}  // namespace
}  // namespace elinvar
