// The part of a member that requests groups of GPUs and knows which one is agreed on. member_group_test.cpp tests whole
// members with groups that reduce.
#include "elastic/protocol/member_groups.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/elastic/member_parts.h"

namespace elinvar {
namespace {

using test::MemberParts;
using test::Sent;

const NcclId kId{};

// A communicator in which no transfer is made.
class IdleCommunicator final : public NcclCommunicator {
 public:
  State state(std::string&) override { return State::done; }
  void transfer(std::span<const GpuPiece>, std::span<const GpuPiece>) override {}
  bool carried() override { return true; }
  void finish() override {}
  std::unique_ptr<NcclCommunicator> shrink(std::span<const int>) override { return nullptr; }
  void abort() override {}
};

struct Groups : MemberParts {
  explicit Groups(int index) : MemberParts(3, index) { position.generation->group = true; }
  MemberGroups groups{true, position, outbox};

  static Generation next(std::optional<int64_t> from = {}) {
    Generation next = generation(2, 3, 0);
    next.group = true;
    next.group_from = from;
    return next;
  }
  void enter(const Generation& generation, bool planned = true) {
    const Generation before = *position.generation;
    position.generation = generation;
    position.promised = generation.number;
    groups.enter(before, planned);
  }
  // Reports a group as a session does.
  void form(int64_t generation) {
    groups.formed(generation, GpuGroup::of(std::make_unique<IdleCommunicator>(), 3, position.index, Device{}));
  }
};

TEST(AskingForGroups, TheFirstMemberNamesItAndTheOthersWaitForTheName) {
  Groups first(0), second(1);
  for (Groups* at : {&first, &second}) at->groups.propose(Groups::next());
  const std::vector<GroupRequest> asked = first.groups.take_requests();
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].generation, 2);
  EXPECT_EQ(asked[0].me, 0);
  EXPECT_FALSE(asked[0].id);
  EXPECT_TRUE(second.groups.take_requests().empty());
  second.position.proposed[2] = Groups::next();
  second.groups.receive({.sender = 3, .generation = 2}, messages::GroupName{kId});
  EXPECT_TRUE(second.groups.take_requests().empty()) << "that is not the first member";
  second.groups.receive({.sender = 1, .generation = 2}, messages::GroupName{kId});
  ASSERT_EQ(second.groups.take_requests().size(), 1u);
  second.groups.receive({.sender = 1, .generation = 2}, messages::GroupName{kId});
  EXPECT_TRUE(second.groups.take_requests().empty()) << "it has asked";
}

TEST(AskingForGroups, TheFirstMemberTellsTheNameToTheOthers) {
  Groups at(0);
  at.groups.named(1, kId);
  EXPECT_EQ(at.sent(), (Sent{"group>2", "group>3"}));
  at.groups.named(5, kId);
  EXPECT_EQ(at.sent(), Sent{}) << "no such generation is known";
}

TEST(AskingForGroups, ItIsAgreedOnceATrailerSaysThatAllAreInIt) {
  Groups at(0);
  EXPECT_EQ(at.groups.name(), 0);
  at.form(1);
  ASSERT_NE(at.groups.name(), 0);
  EXPECT_FALSE(at.groups.agreed());
  at.groups.reduced(/*agreed_name=*/0, /*in_group=*/false);
  EXPECT_FALSE(at.groups.agreed()) << "somebody is in none";
  at.groups.reduced(at.groups.name(), false);
  EXPECT_TRUE(at.groups.agreed());
  EXPECT_EQ(at.sent(), Sent{});
  for (int step = 0; step < 2; ++step) at.groups.reduced(at.groups.name(), true);
  EXPECT_EQ(at.sent(), Sent{"group_used>99"}) << "told once";
}

TEST(AskingForGroups, AnUnchangedGroupGoesOnWithoutAnotherWord) {
  Groups at(1);
  at.form(1);
  at.groups.reduced(at.groups.name(), true);
  at.enter(Groups::next(/*from=*/1));
  const std::vector<GroupRequest> asked = at.groups.take_requests();
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].from, 1);
  EXPECT_TRUE(asked[0].gone.empty());
  EXPECT_TRUE(at.groups.agreed());
}

TEST(AskingForGroups, WhoCannotMakeItFromTheOneBeforeTellsTheFirstWhichAsksForANewOne) {
  Groups second(1);
  second.enter(Groups::next(/*from=*/1));  // its group of generation 1 has not formed
  EXPECT_EQ(second.sent(), Sent{"group_again>1"});
  Groups first(0);
  first.form(1);
  first.enter(Groups::next(1));
  const int64_t before = first.groups.name();
  EXPECT_EQ(first.groups.take_requests().size(), 1u);
  for (int i = 0; i < 2; ++i) first.groups.receive({.sender = 2, .generation = 2}, messages::GroupAgain{});
  const std::vector<GroupRequest> asked = first.groups.take_requests();
  ASSERT_EQ(asked.size(), 1u) << "once";
  EXPECT_FALSE(asked[0].from);
  EXPECT_EQ(first.groups.name(), 0) << "the one that was kept is none with others";
  first.form(2);
  EXPECT_NE(first.groups.name(), before);
}

TEST(AskingForGroups, TroubleIsRepeatedUntilAnotherGeneration) {
  Groups at(1);
  at.groups.stalled("a link hangs");
  at.groups.stalled("another reason");
  at.groups.repeat_trouble();
  EXPECT_EQ(at.sent(), (Sent{"group_failed>99", "group_failed>99"}));
  EXPECT_EQ(at.last.as<messages::GroupFailed>()->reason, "a link hangs");
  at.enter(Groups::next());
  at.groups.repeat_trouble();
  EXPECT_EQ(at.sent(), Sent{});
}

TEST(AskingForGroups, AWorkerWithoutAGpuAsksForNothing) {
  MemberParts at(3, 0);
  MemberGroups groups(false, at.position, at.outbox);
  groups.propose(Groups::next());
  EXPECT_TRUE(groups.take_requests().empty());
}

}  // namespace
}  // namespace elinvar
