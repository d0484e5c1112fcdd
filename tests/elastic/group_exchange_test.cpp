// What members of a group of GPUs tell each other before it reduces; member_group_test.cpp has groups that do.
#include "elastic/protocol/group_exchange.h"

#include <gtest/gtest.h>

#include <vector>

namespace elinvar {
namespace {

messages::GroupRoots roots_of(int member) {
  return {.member = member, .count = 1, .roots = {{.begin = member, .end = member + 1, .present = true}}};
}

struct GroupPeer {
  Buckets buckets{{{3}, {2}}, /*elements=*/3, BucketCuts{.whole = true}};
  GroupExchange exchange{nullptr, {.vranks = 3, .members = 3, .me = 0, .buckets = &buckets, .gradients = 2}};
  std::vector<int> told;
  SendToMember send = [this](int member, const Payload&) { told.push_back(member); };
};

TEST(GroupExchange, AMemberTellsItsRootsOnce) {
  GroupPeer at;
  const Subtree root{0, 1, {Tensor::full({3}, 1), Tensor::full({2}, 1)}};
  for (const int bucket : {1, 0}) at.exchange.contribute(bucket, {&root}, 1, at.send);
  EXPECT_EQ(at.told, (std::vector<int>{1, 2}));
}

TEST(GroupExchange, NothingBeginsBeforeTheRootsOfAllAreKnown) {
  GroupPeer at;
  EXPECT_EQ(at.exchange.missing(), "the roots of 3 of 3 members");
  at.exchange.contribute(0, {}, 0, at.send);
  EXPECT_EQ(at.exchange.receive(roots_of(1)), "");
  EXPECT_EQ(at.exchange.missing(), "the roots of 1 of 3 members");
  EXPECT_FALSE(at.exchange.work());
  EXPECT_EQ(at.exchange.progress(), std::nullopt);
  EXPECT_EQ(at.exchange.trouble(), "");
  EXPECT_EQ(at.exchange.receive(roots_of(2)), "");
  EXPECT_EQ(at.exchange.missing(), "");
  EXPECT_FALSE(at.exchange.done());
}

TEST(GroupExchange, RootsThatMakeNoSenseAreRefused) {
  GroupPeer at;
  EXPECT_EQ(at.exchange.receive(roots_of(1)), "");
  EXPECT_NE(at.exchange.receive(roots_of(1)), "") << "told twice";
  EXPECT_NE(at.exchange.receive(roots_of(3)), "") << "no such member";
  messages::GroupRoots crooked = roots_of(2);
  crooked.roots[0] = {.begin = 1, .end = 3};
  EXPECT_NE(at.exchange.receive(crooked), "") << "no node of the tree";
}

}  // namespace
}  // namespace elinvar
