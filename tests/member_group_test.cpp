// Members about groups of GPUs (PROTOCOL.md, "Groups of GPUs"): who does what, message by message.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "elastic/member.h"
#include "tensor/side_queue.h"
#ifdef ELINVAR_EMULATION
#include "tests/emulation/nccl.h"
#endif

namespace elinvar {
namespace {

using Json = nlohmann::json;

#ifdef ELINVAR_EMULATION

const Device kGpu{DeviceKind::emulated};

// Members 1, 2, .. of a generation that is to be a group, each with two virtual ranks to begin with, and a network that
// brings everything at once.
struct Pair {
  static constexpr PeerId kCoordinator = 9;
  explicit Pair(int count = 2) : vranks(2 * count) {
    for (PeerId peer = 1; peer <= static_cast<PeerId>(count); ++peer) {
      Member& m =
          *members
               .emplace(peer, std::make_unique<Member>(MemberOptions{
                                  .self = peer, .vranks = vranks, .steps = 10, .bucket_elements = 3, .groups = true}))
               .first->second;
      m.introduce(kCoordinator, Json::object());
      m.receive({.kind = "welcome", .sender = kCoordinator, .body = {{"restore", 0}}});
      m.loaded(m.take_load());
      m.learn_layout(leaf(0));
    }
    start(1, 0);
  }

  // Of those that are here; without others a leaf's share goes to the last.
  Generation generation(int64_t number, int64_t first_step, std::optional<int64_t> from = {}) const {
    Generation generation{.number = number, .first_step = first_step, .members = {}, .next_id = 9, .reason = ""};
    generation.group = true;
    generation.group_from = from;
    for (const auto& [peer, m] : members) {
      const int first = 2 * static_cast<int>(generation.members.size());
      const bool last = peer == members.rbegin()->first;
      const std::vector<Interval> share = {{first, last ? vranks : first + 2}};
      generation.members.push_back(
          {.id = static_cast<int>(peer), .peer = peer, .endpoint = "e", .share = share, .first_share = share});
    }
    return generation;
  }
  void start(int64_t number, int64_t first_step, std::optional<int64_t> from = {}) {
    const Generation generation = this->generation(number, first_step, from);
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
          if (action.message.kind == "group_used") made = action.message.body.at("made").get<std::string>();
          if (action.message.kind == "fenced") whole[peer] = action.message.body.value("group", int64_t{0});
          if (!members.contains(action.peer)) continue;
          members.at(action.peer)->receive(action.message);
          any = true;
        }
    }
  }

  // What they ask for, as a session would do it.
  void form_groups(int64_t generation) {
    const auto first = members.begin();
    const std::vector<GroupRequest> asked = first->second->take_group_requests();
    ASSERT_EQ(asked.size(), 1u);
    EXPECT_EQ(asked[0].generation, generation);
    EXPECT_EQ(asked[0].me, 0);
    EXPECT_FALSE(asked[0].id || asked[0].from);
    for (auto it = std::next(first); it != members.end(); ++it)
      EXPECT_TRUE(it->second->take_group_requests().empty()) << "it does not know the name yet";
    const auto nccl = emulation::nccl({});
    const NcclId id = nccl->make_id();
    first->second->group_named(generation, id);
    deliver();
    for (auto it = std::next(first); it != members.end(); ++it) {
      const std::vector<GroupRequest> others = it->second->take_group_requests();
      ASSERT_EQ(others.size(), 1u);
      EXPECT_EQ(others[0].id, id);
    }
    const int count = static_cast<int>(members.size());
    each_at_once([&](int m) { return GpuGroup::form(*nccl, id, count, m, std::chrono::seconds(20)); });
    for (auto& [peer, m] : members) m->group_formed(generation, groups.at(peer));
  }
  // From the one before, without these of its members.
  void shrink_groups(int64_t generation, const std::vector<int>& gone) {
    for (auto& [peer, m] : members) {
      const std::vector<GroupRequest> asked = m->take_group_requests();
      ASSERT_EQ(asked.size(), 1u);
      EXPECT_EQ(asked[0].generation, generation);
      EXPECT_EQ(asked[0].gone, gone);
      EXPECT_TRUE(asked[0].from && !asked[0].id);
    }
    const std::map<PeerId, std::shared_ptr<GpuGroup>> before = groups;
    auto peer = members.begin();
    std::vector<std::shared_ptr<GpuGroup>> parents;
    for (; peer != members.end(); ++peer) parents.push_back(before.at(peer->first));
    each_at_once([&](int m) { return parents[static_cast<size_t>(m)]->shrink(gone, std::chrono::seconds(20)); });
    for (auto& [p, m] : members) m->group_formed(generation, groups.at(p));
  }
  template <class F>
  void each_at_once(F f) {
    std::vector<std::shared_ptr<GpuGroup>> here(members.size());
    {
      std::vector<std::jthread> threads;
      for (int m = 0; m < static_cast<int>(members.size()); ++m)
        threads.emplace_back([&, m] { here[static_cast<size_t>(m)] = f(m); });
    }
    groups.clear();
    for (const auto& [peer, m] : members) groups[peer] = here[groups.size()];
  }

  void add_leaves() {
    for (auto& [peer, m] : members)
      for (const int v : m->todo()) m->add(m->step(), v, leaf(v), 1);
  }
  void contribute() {
    for (auto& [peer, m] : members) m->contribute(std::nullopt);
    deliver();
  }
  // Until all have it; where it lies.
  Device finish() {
    std::map<PeerId, bool> done;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (done.size() < members.size() && std::chrono::steady_clock::now() < deadline) {
      for (auto& [peer, m] : members)
        if (!done.contains(peer) && m->reduce() == Member::Progress::complete) done[peer] = true;
      deliver();
    }
    EXPECT_EQ(done.size(), members.size());
    Device device;
    const float n = static_cast<float>(vranks), sum = n * (n - 1) / 2;
    for (auto& [peer, m] : members) {
      const Reduced reduced = m->take_reduced();
      device = reduced.gradients.at(0).device();
      for (const float x : reduced.gradients[0].to(Device{}).span<float>())
        EXPECT_EQ(x, (n * 0.5f + sum) * static_cast<float>(1.0 / vranks));
      for (const float x : reduced.gradients[1].to(Device{}).span<float>())
        EXPECT_EQ(x, (n * 0.25f + sum) * static_cast<float>(1.0 / vranks));
      EXPECT_EQ(reduced.terms[0].to(Device{}).item(), n * 0.125f + sum);
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

  int vranks;
  std::map<PeerId, std::unique_ptr<Member>> members;
  std::map<PeerId, std::shared_ptr<GpuGroup>> groups;  // the newest
  std::map<PeerId, Leaf> opened;                       // leaves that are on their way gradient by gradient
  std::vector<Tensor> spoiled;
  std::vector<std::string> sent, reports;
  std::string made;                 // how the group that is used was,
  std::map<PeerId, int64_t> whole;  // and what they answered to a fence of it
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

// The last leaf of each is open, and of its gradients the second is there: the bucket that this one and the term make
// is added up.
void add_up_the_first_bucket(Pair& pair) {
  for (auto& [peer, m] : pair.members) {
    const int first = 2 * (static_cast<int>(peer) - 1), second = first + 1;
    auto others = std::make_unique<Leaf>(Pair::leaf(first));  // somebody else has it as well, for a while
    m->add(m->step(), first, *others, 1);
    ASSERT_TRUE(m->opens(second));
    const Leaf& leaf = pair.opened[peer] = Pair::leaf(second);
    const SideQueue side(kGpu, SideQueue::Of::gradients);
    side.follow();
    m->open(m->step(), second, leaf.facts.count, leaf.terms);
    m->put(1, leaf.gradients[1]);
    others.reset();
    for (const int64_t n : {3, 2, 1}) pair.spoiled.push_back(Tensor::empty({n}, DType::f32, kGpu));  // in its place
    EXPECT_FALSE(m->work()) << "not all have said that they have it";
    EXPECT_FALSE(m->transferring());
  }
  pair.deliver();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto added_up = [&] {
    return std::ranges::all_of(pair.members, [](const auto& m) { return m.second->group_progress() == 2; });
  };
  while (!added_up() && std::chrono::steady_clock::now() < deadline)
    for (auto& [peer, m] : pair.members) EXPECT_FALSE(m->work());
  EXPECT_TRUE(added_up());
}
void end_the_leaf(Pair& pair) {
  for (auto& [peer, m] : pair.members) {
    const int second = 2 * (static_cast<int>(peer) - 1) + 1;
    {
      const SideQueue side(kGpu, SideQueue::Of::gradients);
      side.follow();
      m->put(0, pair.opened[peer].gradients[0]);
    }
    SideQueue::join(kGpu, SideQueue::Of::gradients);
    m->add(m->step(), second, std::exchange(pair.opened[peer], {}), 1);
  }
}

TEST(MemberGroups, ABucketIsAddedUpBeforeTheLastLeafIsWhole) {
  Pair pair;
  pair.form_groups(1);
  pair.step();
  for (int step = 0; step < 2; ++step) {
    pair.sent.clear();
    add_up_the_first_bucket(pair);
    EXPECT_EQ(pair.count("roots"), 2);
    EXPECT_FALSE(pair.groups.at(1)->whole());
    end_the_leaf(pair);
    pair.contribute();
    EXPECT_EQ(pair.finish(), kGpu);
    EXPECT_EQ(pair.count("roots"), 2);
    EXPECT_EQ(pair.count("contribution") + pair.count("result"), 0);
    EXPECT_TRUE(pair.groups.at(1)->whole());
  }
}

// The transfer is given up, leaves are kept, also the one that was on its way.
TEST(MemberGroups, ADeathBetweenTwoBucketsCostsNoLeaf) {
  Pair three(3);
  three.form_groups(1);
  three.step();
  three.sent.clear();
  add_up_the_first_bucket(three);
  three.members.erase(3);
  for (auto& [peer, m] : three.members) m->receive({.kind = "fence", .sender = Pair::kCoordinator, .generation = 2});
  three.deliver();
  EXPECT_EQ(three.whole.at(1), 0) << "it is in the middle of a step";
  end_the_leaf(three);
  three.start(2, 1);
  EXPECT_TRUE(three.members.at(1)->todo().empty());
  EXPECT_EQ(three.members.at(2)->todo(), (std::vector<int>{4, 5}));
  EXPECT_EQ(three.step(), Device{});
  three.form_groups(2);
  three.step();
  EXPECT_EQ(three.step(), kGpu);
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

// One leaves as planned: the others make their group from what they had.
TEST(MemberGroups, AreMadeFromTheOneBeforeWhenAMemberLeaves) {
  Pair three(3);
  three.form_groups(1);
  three.step();
  EXPECT_EQ(three.step(), kGpu);
  EXPECT_EQ(three.made, "new");
  std::unique_ptr<Member> leaver = std::move(three.members.at(2));
  three.members.erase(2);
  const Generation next = three.generation(2, -1, 1);
  three.members[2] = std::move(leaver);
  for (auto& [peer, m] : three.members) {
    m->receive({.kind = "propose", .sender = Pair::kCoordinator, .generation = 2, .body = to_json(next)});
    EXPECT_TRUE(m->take_group_requests().empty()) << "the group is still in use";
  }
  EXPECT_EQ(three.step(), kGpu) << "the last one of all three";
  EXPECT_FALSE(three.members.at(2)->active());
  leaver = std::move(three.members.at(2));
  three.members.erase(2);
  EXPECT_EQ(three.step(), Device{}) << "nobody waits for the group";
  three.shrink_groups(2, {1});
  EXPECT_EQ(three.step(), Device{});
  EXPECT_EQ(three.step(), kGpu);
  EXPECT_EQ(three.made, "shrunk");
  EXPECT_EQ(three.count("group"), 0);
}

// With the same members no step goes another way.
TEST(MemberGroups, GoOnWithTheSameMembers) {
  Pair pair;
  pair.form_groups(1);
  pair.step();
  const Generation next = pair.generation(2, -1, 1);
  for (auto& [peer, m] : pair.members)
    m->receive({.kind = "propose", .sender = Pair::kCoordinator, .generation = 2, .body = to_json(next)});
  EXPECT_EQ(pair.step(), kGpu);
  for (auto& [peer, m] : pair.members) {
    EXPECT_EQ(m->generation(), 2);
    const std::vector<GroupRequest> asked = m->take_group_requests();
    ASSERT_EQ(asked.size(), 1u);
    EXPECT_EQ(asked[0].from, 1);
    EXPECT_TRUE(asked[0].gone.empty());
  }
  EXPECT_EQ(pair.step(), kGpu);
  EXPECT_EQ(pair.made, "kept");
}

// A death between two transfers leaves it whole, one in the middle of a transfer does not.
TEST(MemberGroups, AreMadeFromTheOneBeforeAfterADeath) {
  for (const bool in_transfer : {false, true}) {
    Pair three(3);
    three.form_groups(1);
    three.step();
    three.step();
    three.add_leaves();
    if (in_transfer) {
      three.contribute();
      (void)three.members.at(1)->reduce();
      EXPECT_TRUE(three.members.at(1)->transferring());
    }
    three.members.erase(3);
    for (auto& [peer, m] : three.members) m->receive({.kind = "fence", .sender = Pair::kCoordinator, .generation = 2});
    three.deliver();
    EXPECT_EQ(three.whole.at(1), in_transfer ? 0 : 1);
    EXPECT_EQ(three.members.at(1)->spare_group(), in_transfer ? 0 : 1);
    if (in_transfer) continue;
    three.start(2, 2, 1);
    EXPECT_EQ(three.members.at(1)->spare_group(), 0);
    three.shrink_groups(2, {2});
    EXPECT_EQ(three.step(), Device{}) << "a trailer has to say first that all have it";
    EXPECT_EQ(three.step(), kGpu);
    EXPECT_EQ(three.made, "shrunk");
  }
}

// What a member said of the group that it had counts no more once it is called to another one.
TEST(MemberGroups, AreNotMixedUp) {
  Pair three(3);
  three.form_groups(1);
  three.step();
  three.members.erase(3);
  for (auto& [peer, m] : three.members) m->receive({.kind = "fence", .sender = Pair::kCoordinator, .generation = 2});
  three.start(2, 1, 1);
  for (auto& [peer, m] : three.members) (void)m->take_group_requests();
  three.members.at(2)->group_formed(2, three.groups.at(2));
  three.add_leaves();
  three.members.at(2)->contribute(std::nullopt);  // it is in the first one
  three.deliver();
  three.members.at(1)->group_not_shrunk(2);
  const auto request = three.members.at(1)->take_group_requests();
  ASSERT_EQ(request.size(), 1u);
  three.members.at(1)->group_named(2, emulation::nccl({})->make_id());
  three.deliver();
  three.members.at(1)->group_formed(2, three.groups.at(1));  // and this one in the second
  three.members.at(1)->contribute(std::nullopt);
  three.deliver();
  EXPECT_EQ(three.finish(), Device{});
  for (auto& [peer, m] : three.members) EXPECT_FALSE(m->reduces_in_group()) << peer;
}

// Whoever cannot tells the first member, which asks all for a new one; nobody uses what it has of the other.
TEST(MemberGroups, AreMadeAnewWhereTheyCannotBeMadeFromTheOneBefore) {
  for (const PeerId unable : {PeerId{1}, PeerId{2}}) {
    Pair three(3);
    three.form_groups(1);
    three.step();
    three.members.erase(3);
    for (auto& [peer, m] : three.members) m->receive({.kind = "fence", .sender = Pair::kCoordinator, .generation = 2});
    three.start(2, 1, 1);
    for (auto& [peer, m] : three.members) EXPECT_EQ(m->take_group_requests().size(), 1u);
    const PeerId other = 3 - unable;
    three.members.at(other)->group_formed(2, three.groups.at(other));  // it could
    three.members.at(unable)->group_not_shrunk(2);
    three.deliver();
    three.members.at(unable)->group_not_shrunk(2);  // a second word changes nothing
    three.deliver();
    EXPECT_EQ(three.count("group_again"), unable == 1 ? 0 : 2);
    EXPECT_EQ(three.step(), Device{});
    three.form_groups(2);
    three.step();
    EXPECT_EQ(three.step(), kGpu);
    EXPECT_EQ(three.made, "new");
  }
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
