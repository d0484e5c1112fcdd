// Members and groups of GPUs (PROTOCOL.md, "Groups of GPUs"): their actions, message by message.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "elastic/protocol/member.h"
#include "tensor/side_queue.h"
#ifdef ELINVAR_EMULATION
#include "tests/elastic/group_members.h"
#include "tests/emulation/nccl.h"
#endif

namespace elinvar {
namespace {

#ifdef ELINVAR_EMULATION

using test::GroupMembers;

constexpr Device kGpu = GroupMembers::kGpu;

TEST(MemberGroups, AddUpOnceATrailerShowsThatAllAreInThem) {
  GroupMembers pair;
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

// The last rank gradient of each member is open, and its second gradient has been put: the bucket of this gradient and
// the batch-statistic sum is reduced.
void add_up_the_first_bucket(GroupMembers& pair) {
  for (auto& [peer, m] : pair.members) {
    const int first = 2 * (static_cast<int>(peer) - 1), second = first + 1;
    auto others =
        std::make_unique<RankGradient>(GroupMembers::leaf(first));  // another owner keeps it alive for a while
    m->gradients().add(m->position().step, first, *others, 1);
    ASSERT_TRUE(m->gradients().opens(second));
    const RankGradient& leaf = pair.opened[peer] = GroupMembers::leaf(second);
    const SideQueue side(kGpu, SideQueue::Of::gradients);
    side.follow();
    m->gradients().open(m->position().step, second, leaf.facts.count, leaf.batch_statistics);
    m->gradients().put(1, leaf.gradients[1]);
    others.reset();
    // Reuses its memory.
    for (const int64_t n : {3, 2, 1}) pair.spoiled.push_back(Tensor::empty({n}, DType::f32, kGpu));
    EXPECT_FALSE(m->reduction().work()) << "not all have said that they have it";
    EXPECT_FALSE(m->reduction().group_progress().has_value());
  }
  pair.deliver();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  const auto added_up = [&] {
    return std::ranges::all_of(pair.members, [](const auto& m) { return m.second->reduction().group_progress() == 2; });
  };
  while (!added_up() && std::chrono::steady_clock::now() < deadline)
    for (auto& [peer, m] : pair.members) EXPECT_FALSE(m->reduction().work());
  EXPECT_TRUE(added_up());
}
void end_the_leaf(GroupMembers& pair) {
  for (auto& [peer, m] : pair.members) {
    const int second = 2 * (static_cast<int>(peer) - 1) + 1;
    {
      const SideQueue side(kGpu, SideQueue::Of::gradients);
      side.follow();
      m->gradients().put(0, pair.opened[peer].gradients[0]);
    }
    SideQueue::join(kGpu, SideQueue::Of::gradients);
    m->gradients().add(m->position().step, second, std::exchange(pair.opened[peer], {}), 1);
  }
}

TEST(MemberGroups, ABucketIsAddedUpBeforeTheLastLeafIsWhole) {
  GroupMembers pair;
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

// The transfer is given up. Rank gradients are kept, including the one in transfer.
TEST(MemberGroups, ADeathBetweenTwoBucketsCostsNoLeaf) {
  GroupMembers three(3);
  three.form_groups(1);
  three.step();
  three.sent.clear();
  add_up_the_first_bucket(three);
  three.members.erase(3);
  for (auto& [peer, m] : three.members)
    m->receive({.sender = GroupMembers::kCoordinator, .generation = 2, .payload = messages::Fence{}});
  three.deliver();
  EXPECT_EQ(three.whole.at(1), 0) << "it is in the middle of a step";
  end_the_leaf(three);
  three.start(2, 1);
  EXPECT_TRUE(three.members.at(1)->gradients().todo().empty());
  EXPECT_EQ(three.members.at(2)->gradients().todo(), (std::vector<int>{4, 5}));
  EXPECT_EQ(three.step(), Device{});
  three.form_groups(2);
  three.step();
  EXPECT_EQ(three.step(), kGpu);
}

// After a fence, rank gradients on the GPU go through the host until the group of the new generation has formed.
TEST(MemberGroups, AFenceEndsThemInTheMiddleOfAStep) {
  GroupMembers pair;
  pair.form_groups(1);
  pair.step();
  pair.add_leaves();
  pair.contribute();
  EXPECT_EQ(pair.members.at(1)->reduce(), Member::Progress::waiting);
  EXPECT_TRUE(pair.members.at(1)->reduction().group_progress().has_value());
  EXPECT_EQ(pair.members.at(1)->reduction().missing(), "") << "whoever waits for the group misses no message";
  for (auto& [peer, m] : pair.members) {
    m->receive({.sender = GroupMembers::kCoordinator, .generation = 2, .payload = messages::Fence{}});
    EXPECT_FALSE(m->reduction().group_progress().has_value());
    EXPECT_EQ(m->position().promised, 2);
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
  GroupMembers pair;
  pair.form_groups(1);
  pair.step();
  for (auto& [peer, m] : pair.members) {
    const int first = 2 * (static_cast<int>(peer) - 1);
    EXPECT_TRUE(m->reduction().in_group());
    EXPECT_TRUE(m->gradients().stay_on_device());
    m->gradients().add(m->position().step, first, GroupMembers::leaf(first), 1);
    m->receive({.sender = GroupMembers::kCoordinator, .generation = 2, .payload = messages::Fence{}});
  }
  pair.start(2, 1);
  for (auto& [peer, m] : pair.members) {
    const int second = 2 * (static_cast<int>(peer) - 1) + 1;
    EXPECT_FALSE(m->reduction().in_group());
    EXPECT_FALSE(m->gradients().stay_on_device());
    m->gradients().add(m->position().step, second, GroupMembers::leaf(second, Device{}), 1);
  }
  pair.contribute();
  EXPECT_EQ(pair.finish(), Device{});
}

TEST(MemberGroups, OneThatStallsIsReportedUntilAFence) {
  GroupMembers pair;
  pair.form_groups(1);
  pair.step();
  pair.add_leaves();
  pair.contribute();
  Member& m = *pair.members.at(1);
  (void)m.reduce();
  pair.reports.clear();
  m.groups().stalled("it hangs");
  m.groups().stalled("it hangs");
  pair.deliver();
  EXPECT_EQ(pair.told("group_failed"), 1);
  m.heartbeat({});
  pair.deliver();
  EXPECT_EQ(pair.told("group_failed"), 2) << "whoever coordinates now may not have it";
  m.receive({.sender = GroupMembers::kCoordinator, .generation = 2, .payload = messages::Fence{}});
  m.heartbeat({});
  pair.deliver();
  EXPECT_EQ(pair.told("group_failed"), 2);
}

// One member leaves as planned: the others make their group from the previous one.
TEST(MemberGroups, AreMadeFromTheOneBeforeWhenAMemberLeaves) {
  GroupMembers three(3);
  three.form_groups(1);
  three.step();
  EXPECT_EQ(three.step(), kGpu);
  EXPECT_EQ(three.made, "new");
  std::unique_ptr<Member> leaver = std::move(three.members.at(2));
  three.members.erase(2);
  const Generation next = three.generation(2, -1, 1);
  three.members[2] = std::move(leaver);
  for (auto& [peer, m] : three.members) {
    m->receive({.sender = GroupMembers::kCoordinator, .generation = 2, .payload = messages::Propose{next}});
    EXPECT_TRUE(m->groups().take_requests().empty()) << "the group is still in use";
  }
  EXPECT_EQ(three.step(), kGpu) << "the last one of all three";
  EXPECT_FALSE(three.members.at(2)->position().active());
  leaver = std::move(three.members.at(2));
  three.members.erase(2);
  EXPECT_EQ(three.step(), Device{}) << "nobody waits for the group";
  three.shrink_groups(2, {1});
  EXPECT_EQ(three.step(), Device{});
  EXPECT_EQ(three.step(), kGpu);
  EXPECT_EQ(three.made, "shrunk");
  EXPECT_EQ(three.count("group"), 0);
}

// With the same members every step stays in the group.
TEST(MemberGroups, GoOnWithTheSameMembers) {
  GroupMembers pair;
  pair.form_groups(1);
  pair.step();
  const Generation next = pair.generation(2, -1, 1);
  for (auto& [peer, m] : pair.members)
    m->receive({.sender = GroupMembers::kCoordinator, .generation = 2, .payload = messages::Propose{next}});
  EXPECT_EQ(pair.step(), kGpu);
  for (auto& [peer, m] : pair.members) {
    EXPECT_EQ(m->position().number(), 2);
    const std::vector<GroupRequest> asked = m->groups().take_requests();
    ASSERT_EQ(asked.size(), 1u);
    EXPECT_EQ(asked[0].from, 1);
    EXPECT_TRUE(asked[0].gone.empty());
  }
  EXPECT_EQ(pair.step(), kGpu);
  EXPECT_EQ(pair.made, "kept");
}

// A death between two transfers leaves the group whole; a death in the middle of a transfer does not.
TEST(MemberGroups, AreMadeFromTheOneBeforeAfterADeath) {
  for (const bool in_transfer : {false, true}) {
    GroupMembers three(3);
    three.form_groups(1);
    three.step();
    three.step();
    three.add_leaves();
    if (in_transfer) {
      three.contribute();
      (void)three.members.at(1)->reduce();
      EXPECT_TRUE(three.members.at(1)->reduction().group_progress().has_value());
    }
    three.members.erase(3);
    for (auto& [peer, m] : three.members)
      m->receive({.sender = GroupMembers::kCoordinator, .generation = 2, .payload = messages::Fence{}});
    three.deliver();
    EXPECT_EQ(three.whole.at(1), in_transfer ? 0 : 1);
    EXPECT_EQ(three.members.at(1)->groups().spare(), in_transfer ? 0 : 1);
    if (in_transfer) continue;
    three.start(2, 2, 1);
    EXPECT_EQ(three.members.at(1)->groups().spare(), 0);
    three.shrink_groups(2, {2});
    EXPECT_EQ(three.step(), Device{}) << "a trailer has to say first that all have it";
    EXPECT_EQ(three.step(), kGpu);
    EXPECT_EQ(three.made, "shrunk");
  }
}

// A member's claim to have the old group does not count once it is called to a new one.
TEST(MemberGroups, AreNotMixedUp) {
  GroupMembers three(3);
  three.form_groups(1);
  three.step();
  three.members.erase(3);
  for (auto& [peer, m] : three.members)
    m->receive({.sender = GroupMembers::kCoordinator, .generation = 2, .payload = messages::Fence{}});
  three.start(2, 1, 1);
  for (auto& [peer, m] : three.members) (void)m->groups().take_requests();
  three.members.at(2)->groups().formed(2, three.groups.at(2));
  three.add_leaves();
  three.members.at(2)->gradients().contribute(std::nullopt);  // it is in the old group
  three.deliver();
  three.members.at(1)->groups().not_shrunk(2);
  const auto request = three.members.at(1)->groups().take_requests();
  ASSERT_EQ(request.size(), 1u);
  three.members.at(1)->groups().named(2, emulation::nccl({})->make_id());
  three.deliver();
  three.members.at(1)->groups().formed(2, three.groups.at(1));  // this member is in the new group
  three.members.at(1)->gradients().contribute(std::nullopt);
  three.deliver();
  EXPECT_EQ(three.finish(), Device{});
  for (auto& [peer, m] : three.members) EXPECT_FALSE(m->reduction().in_group()) << peer;
}

// A member that cannot make the group tells the first member, which asks all for a new one; no member uses the old one.
TEST(MemberGroups, AreMadeAnewWhereTheyCannotBeMadeFromTheOneBefore) {
  for (const PeerId unable : {PeerId{1}, PeerId{2}}) {
    GroupMembers three(3);
    three.form_groups(1);
    three.step();
    three.members.erase(3);
    for (auto& [peer, m] : three.members)
      m->receive({.sender = GroupMembers::kCoordinator, .generation = 2, .payload = messages::Fence{}});
    three.start(2, 1, 1);
    for (auto& [peer, m] : three.members) EXPECT_EQ(m->groups().take_requests().size(), 1u);
    const PeerId other = 3 - unable;
    three.members.at(other)->groups().formed(2, three.groups.at(other));  // this member could make it
    three.members.at(unable)->groups().not_shrunk(2);
    three.deliver();
    three.members.at(unable)->groups().not_shrunk(2);  // a second message changes nothing
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
  GroupMembers pair;
  const NcclId id = emulation::nccl({})->make_id();
  pair.members.at(2)->receive({.sender = 7, .generation = 1, .payload = messages::GroupName{id}});
  EXPECT_TRUE(pair.members.at(2)->groups().take_requests().empty());
  pair.members.at(2)->receive({.sender = 1, .generation = 1, .payload = messages::GroupName{id}});
  EXPECT_EQ(pair.members.at(2)->groups().take_requests().size(), 1u);
}

#endif

}  // namespace
}  // namespace elinvar
