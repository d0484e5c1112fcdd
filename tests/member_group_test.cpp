// Members and a coordinator about groups of GPUs (PROTOCOL.md, "Groups of GPUs"): who decides what, message by message.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "elastic/coordinator.h"
#include "elastic/member.h"
#ifdef ELINVAR_EMULATION
#include "tests/emulation/nccl.h"
#endif

namespace elinvar {
namespace {

using Json = nlohmann::json;

// A coordinator to which workers come one after another; what it has recorded and told.
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
  void put_out(PeerId) override {}
  std::string refuse(const Json&) override { return ""; }
};

struct Job {
  explicit Job(const std::vector<Json>& nccl)
      : coordinator({.steps = 100, .initial_workers = static_cast<int>(nccl.size())}, world, 0, {}, 0) {
    for (size_t i = 0; i < nccl.size(); ++i) {
      const PeerId peer = 10 + i;
      Json about = {{"endpoint", "e"}, {"active", false}, {"loaded", false}, {"promised", 0}};
      if (!nccl[i].is_null()) about["nccl"] = nccl[i];
      tell(peer, "hello", 0, about);
      tell(peer, "ready", 0, {{"attempt", 0}});
    }
  }
  void tell(PeerId peer, const std::string& kind, int64_t generation, const Json& body) {
    coordinator.receive({.kind = kind, .sender = peer, .generation = generation, .body = body}, 0);
  }
  void answer_fences() {
    for (const Action& action : coordinator.take_actions())
      if (action.message.kind == "fence")
        tell(action.peer, "fenced", 1,
             {{"promised", action.message.generation},
              {"active", true},
              {"loaded", true},
              {"keeps", true},
              {"share", Json::array()}});
  }
  std::string reason() const { return coordinator.status(0).at("data_plane").value("reason", ""); }

  World world;
  Coordinator coordinator;
};

Json gpu(const std::string& place, const std::string& version = "NCCL 2.28.9") {
  return {{"place", place}, {"version", version}};
}

TEST(CoordinatorGroups, AreOfGpusThatAllHaveOneOfTheirOwn) {
  const auto reason = [](const std::vector<Json>& nccl) {
    const Job job(nccl);
    EXPECT_EQ(job.world.records.size(), 1u);
    const bool group = job.world.records.at(0).group;
    EXPECT_EQ(generation_from(to_json(job.world.records[0])).group, group);
    EXPECT_EQ(job.coordinator.status(0).at("data_plane").at("kind"), "host") << "nobody has used it yet";
    return (group ? "a group: " : "none: ") + job.reason();
  };
  EXPECT_EQ(reason({gpu("a"), gpu("b")}), "a group: the group is being formed");
  EXPECT_EQ(reason({gpu("a")}), "none: a worker alone sends nothing");
  EXPECT_EQ(reason({gpu("a"), {{"why_not", "it computes on the CPU"}}}),
            "none: worker 2 has no NCCL: it computes on the CPU");
  EXPECT_EQ(reason({gpu("a"), nullptr}), "none: worker 2 has no NCCL: it says nothing of NCCL");
  EXPECT_EQ(reason({gpu("a"), gpu("b"), gpu("a")}), "none: workers 1 and 3 share a");
  EXPECT_EQ(reason({gpu("a"), gpu("b", "NCCL 2.27.3")}), "none: worker 2 has NCCL 2.27.3, others have NCCL 2.28.9");
}

TEST(CoordinatorGroups, OneThatFailsIsMadeAnewAFewTimes) {
  Job job({gpu("a"), gpu("b")});
  job.tell(10, "group_missing", 1, {{"of", 1}, {"reason", "no network"}});
  EXPECT_EQ(job.reason(), "worker 1: no network");
  EXPECT_EQ(job.world.records.size(), 1u) << "the hosts stand in";
  job.tell(10, "group_used", 1, Json::object());
  EXPECT_EQ(job.coordinator.status(0).at("data_plane"), Json({{"kind", "nccl"}}));
  job.tell(11, "group_used", 1, Json::object());
  const auto told = [&](const std::string& name) {
    return std::count_if(job.world.events.begin(), job.world.events.end(),
                         [&](const auto& e) { return e.first == name; });
  };
  EXPECT_EQ(told("data_plane"), 2);
  for (int failures = 1; failures <= 3; ++failures) {
    const int64_t number = job.world.records.back().number;
    EXPECT_TRUE(job.world.records.back().group);
    job.tell(11, "group_failed", number - 1, {{"reason", "of a generation that is over"}});
    (void)job.coordinator.take_actions();
    job.tell(11, "group_failed", number, {{"reason", "a link is down"}});
    EXPECT_EQ(told("fence"), failures);
    job.tell(10, "group_failed", number, {{"reason", "the same, found by another"}});
    job.answer_fences();
    ASSERT_EQ(job.world.records.size(), static_cast<size_t>(failures) + 1);
  }
  EXPECT_FALSE(job.world.records.back().group);
  EXPECT_EQ(job.reason(), "groups have failed 3 times, at last: worker 2: a link is down");
}

TEST(CoordinatorGroups, WhatADeathBreaksIsNoFailure) {
  Job job({gpu("a"), gpu("b"), gpu("c"), gpu("d"), gpu("e"), gpu("f")});
  for (PeerId dead = 15; dead > 11; --dead) {
    const int64_t number = job.world.records.back().number;
    (void)job.coordinator.take_actions();
    job.tell(10, "group_failed", number, {{"reason", "a peer is gone"}});
    job.coordinator.lost(dead, "killed", 0);
    job.answer_fences();
    ASSERT_GT(job.world.records.back().number, number);
    EXPECT_TRUE(job.world.records.back().group);
  }
}

#ifdef ELINVAR_EMULATION

const Device kGpu{DeviceKind::emulated};

// Two members of a generation that is to be a group, each with two of four virtual ranks, and a network that brings
// everything at once.
struct Pair {
  static constexpr PeerId kCoordinator = 9;
  Pair() {
    for (const PeerId peer : {PeerId{1}, PeerId{2}}) {
      Member& m =
          *members
               .emplace(peer, std::make_unique<Member>(MemberOptions{
                                  .self = peer, .vranks = 4, .steps = 10, .bucket_elements = 3, .groups = true}))
               .first->second;
      m.introduce(kCoordinator, Json::object());
      m.receive({.kind = "welcome", .sender = kCoordinator, .body = {{"restore", 0}}});
      m.loaded(m.take_load());
      m.learn_layout(leaf(0));
    }
    start(1, 0);
  }

  void start(int64_t number, int64_t first_step) {
    Generation generation{.number = number, .first_step = first_step, .members = {}, .next_id = 3, .reason = ""};
    generation.group = true;
    for (const auto& [peer, m] : members) {
      const int first = 2 * (static_cast<int>(peer) - 1);
      const std::vector<Interval> share = {{first, first + 2}};
      generation.members.push_back(
          {.id = static_cast<int>(peer), .peer = peer, .endpoint = "e", .share = share, .first_share = share});
    }
    for (auto& [peer, m] : members)
      m->receive({.kind = "start",
                  .sender = kCoordinator,
                  .generation = number,
                  .body = {{"record", to_json(generation)}, {"completed", Json::object()}}});
    deliver();
  }

  static Leaf leaf(int vrank, Device device = kGpu) {
    const auto tensor = [&](int64_t n, double x) { return Tensor::full({n}, x + vrank, DType::f32, device); };
    return {.gradients = {tensor(3, 0.5), tensor(2, 0.25)},
            .terms = {tensor(1, 0.125)},
            .facts = {.count = 1, .samples = 1}};
  }

  // Kinds of messages between members, and to the coordinator, since the last call.
  void deliver() {
    for (bool any = true; any;) {
      any = false;
      for (auto& [peer, m] : members)
        for (Action& action : m->take_actions()) {
          if (action.what != Action::What::send) continue;
          action.message.sender = peer;
          (action.peer == kCoordinator ? reports : sent).push_back(action.message.kind);
          if (!members.contains(action.peer)) continue;
          members.at(action.peer)->receive(action.message);
          any = true;
        }
    }
  }

  // What they ask for, as a session would do it.
  void form_groups(int64_t generation) {
    const std::vector<GroupRequest> first = members.at(1)->take_group_requests();
    ASSERT_EQ(first.size(), 1u);
    EXPECT_EQ(first[0].generation, generation);
    EXPECT_EQ(first[0].me, 0);
    EXPECT_FALSE(first[0].id);
    EXPECT_TRUE(members.at(2)->take_group_requests().empty()) << "it does not know the name yet";
    const auto nccl = emulation::nccl({});
    const NcclId id = nccl->make_id();
    members.at(1)->group_named(generation, id);
    deliver();
    const std::vector<GroupRequest> second = members.at(2)->take_group_requests();
    ASSERT_EQ(second.size(), 1u);
    EXPECT_EQ(second[0].id, id);
    std::shared_ptr<GpuGroup> groups[2];
    {
      const std::jthread other([&] { groups[1] = GpuGroup::form(*nccl, id, 2, 1, std::chrono::seconds(20)); });
      groups[0] = GpuGroup::form(*nccl, id, 2, 0, std::chrono::seconds(20));
    }
    members.at(1)->group_formed(generation, groups[0]);
    members.at(2)->group_formed(generation, groups[1]);
  }

  void add_leaves() {
    for (auto& [peer, m] : members) {
      const int first = 2 * (static_cast<int>(peer) - 1);
      for (const int v : {first, first + 1}) m->add(m->step(), v, leaf(v), 1);
    }
  }
  void contribute() {
    for (auto& [peer, m] : members) m->contribute(std::nullopt);
    deliver();
  }
  // Until all have it; where it lies.
  Device finish() {
    std::map<PeerId, bool> done;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (done.size() < 2 && std::chrono::steady_clock::now() < deadline) {
      for (auto& [peer, m] : members)
        if (!done.contains(peer) && m->reduce() == Member::Progress::complete) done[peer] = true;
      deliver();
    }
    EXPECT_EQ(done.size(), 2u);
    Device device;
    for (auto& [peer, m] : members) {
      const Reduced reduced = m->take_reduced();
      device = reduced.gradients.at(0).device();
      for (const float x : reduced.gradients[0].to(Device{}).span<float>()) EXPECT_EQ(x, (4 * 0.5f + 6) / 4);
      for (const float x : reduced.gradients[1].to(Device{}).span<float>()) EXPECT_EQ(x, (4 * 0.25f + 6) / 4);
      EXPECT_EQ(reduced.terms[0].to(Device{}).item(), 4 * 0.125 + 6);
      m->advance(Json::object());
    }
    deliver();
    return device;
  }
  Device step() {
    sent.clear();
    reports.clear();
    add_leaves();
    contribute();
    return finish();
  }
  int64_t count(const std::string& kind) const { return std::count(sent.begin(), sent.end(), kind); }
  int64_t told(const std::string& kind) const { return std::count(reports.begin(), reports.end(), kind); }

  std::map<PeerId, std::unique_ptr<Member>> members;
  std::vector<std::string> sent, reports;
};

TEST(MemberGroups, AddUpOnceATrailerShowsThatAllAreInThem) {
  Pair pair;
  EXPECT_EQ(pair.step(), Device{}) << "there is no group yet";
  EXPECT_GT(pair.count("contribution"), 0);
  pair.form_groups(1);
  EXPECT_EQ(pair.step(), Device{}) << "nobody knew at its beginning that all have it";
  EXPECT_GT(pair.count("result"), 0);
  EXPECT_EQ(pair.step(), kGpu);
  EXPECT_EQ(pair.count("roots"), 2);
  EXPECT_EQ(pair.count("contribution") + pair.count("result"), 0);
  EXPECT_EQ(pair.told("group_used"), 1);
  EXPECT_EQ(pair.step(), kGpu);
  EXPECT_EQ(pair.told("group_used"), 0) << "it is told once";
}

// After a fence leaves that lie on the GPU go through the host, until the group of the new generation is there.
TEST(MemberGroups, AFenceEndsThemInTheMiddleOfAStep) {
  Pair pair;
  pair.form_groups(1);
  pair.step();
  pair.add_leaves();
  pair.contribute();
  EXPECT_EQ(pair.members.at(1)->reduce(), Member::Progress::waiting);
  EXPECT_TRUE(pair.members.at(1)->transferring());
  EXPECT_EQ(pair.members.at(1)->missing(), "") << "whoever waits for the group misses no message";
  for (auto& [peer, m] : pair.members) {
    m->receive({.kind = "fence", .sender = Pair::kCoordinator, .generation = 2});
    EXPECT_FALSE(m->transferring());
    EXPECT_EQ(m->oldest_group(), 2);
  }
  pair.sent.clear();
  pair.start(2, 1);
  pair.contribute();
  EXPECT_EQ(pair.finish(), Device{});
  EXPECT_GT(pair.count("contribution"), 0);
  pair.form_groups(2);
  pair.step();
  EXPECT_EQ(pair.step(), kGpu);
}

TEST(MemberGroups, LeavesFromBeforeAndAfterAFenceAreAddedUp) {
  Pair pair;
  pair.form_groups(1);
  pair.step();
  for (auto& [peer, m] : pair.members) {
    const int first = 2 * (static_cast<int>(peer) - 1);
    EXPECT_TRUE(m->reduces_in_group());
    EXPECT_TRUE(m->keeps_leaves());
    m->add(m->step(), first, Pair::leaf(first), 1);
    m->receive({.kind = "fence", .sender = Pair::kCoordinator, .generation = 2});
  }
  pair.start(2, 1);
  for (auto& [peer, m] : pair.members) {
    const int second = 2 * (static_cast<int>(peer) - 1) + 1;
    EXPECT_FALSE(m->reduces_in_group());
    EXPECT_FALSE(m->keeps_leaves());
    m->add(m->step(), second, Pair::leaf(second, Device{}), 1);
  }
  pair.contribute();
  EXPECT_EQ(pair.finish(), Device{});
}

TEST(MemberGroups, OneThatStallsIsReportedUntilAFence) {
  Pair pair;
  pair.form_groups(1);
  pair.step();
  pair.add_leaves();
  pair.contribute();
  Member& m = *pair.members.at(1);
  (void)m.reduce();
  pair.reports.clear();
  m.group_stalled("it hangs");
  m.group_stalled("it hangs");
  pair.deliver();
  EXPECT_EQ(pair.told("group_failed"), 1);
  m.heartbeat(Json::object());
  pair.deliver();
  EXPECT_EQ(pair.told("group_failed"), 2) << "whoever coordinates now may not have it";
  m.receive({.kind = "fence", .sender = Pair::kCoordinator, .generation = 2});
  m.heartbeat(Json::object());
  pair.deliver();
  EXPECT_EQ(pair.told("group_failed"), 2);
}

TEST(MemberGroups, AreCalledByTheFirstMemberAlone) {
  Pair pair;
  const std::string id = emulation::nccl({})->make_id().hex();
  pair.members.at(2)->receive({.kind = "group", .sender = 7, .generation = 1, .body = {{"id", id}}});
  EXPECT_TRUE(pair.members.at(2)->take_group_requests().empty());
  pair.members.at(2)->receive({.kind = "group", .sender = 1, .generation = 1, .body = {{"id", "no id"}}});
  pair.reports.clear();
  pair.deliver();
  EXPECT_EQ(pair.told("suspect"), 1);
  EXPECT_TRUE(pair.members.at(2)->take_group_requests().empty());
}

#endif

}  // namespace
}  // namespace elinvar
