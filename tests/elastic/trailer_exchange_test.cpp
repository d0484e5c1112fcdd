#include "elastic/protocol/trailer_exchange.h"

#include <gtest/gtest.h>

#include <vector>

namespace elinvar {
namespace {

messages::TrailerPart part(int member, int64_t held = 1) {
  messages::TrailerPart part{.member = member, .held = held, .group = 6};
  part.facts[member] = {.loss_sum = 1.0 + member, .count = 1};
  return part;
}

struct First {
  TrailerExchange trailer{/*vranks=*/3, /*members=*/3, /*me=*/0};
  std::vector<int> to;  // the members to which the trailer was sent
  SendToMember send = [this](int member, const Payload&) { to.push_back(member); };
};

TEST(TrailerExchange, TheFirstMemberCombinesThePartsOfAll) {
  First at;
  EXPECT_EQ(at.trailer.missing(), "3 of 3 parts of the trailer");
  at.trailer.contribute(part(0, 5), {.tensors = "digests"}, at.send);
  EXPECT_TRUE(at.trailer.contributed());
  EXPECT_EQ(at.trailer.receive(part(2, 4), at.send), "");
  EXPECT_EQ(at.trailer.missing(), "1 of 3 parts of the trailer");
  EXPECT_FALSE(at.trailer.trailer());
  EXPECT_EQ(at.trailer.receive(part(1, 7), at.send), "");
  ASSERT_TRUE(at.trailer.trailer());
  EXPECT_EQ(at.trailer.missing(), "");
  EXPECT_EQ(at.to, (std::vector<int>{1, 2}));
  const messages::Trailer& trailer = *at.trailer.trailer();
  EXPECT_EQ(trailer.agreed, 4) << "the lowest generation that a member holds";
  EXPECT_EQ(trailer.group, 6);
  EXPECT_EQ(trailer.facts[2].loss_sum, 3);
  EXPECT_EQ(trailer.contradiction, "");
  EXPECT_EQ(trailer.state_digests, StateDigests{}) << "no member has digested its state";
}

TEST(TrailerExchange, DifferentStatesAreAContradictionAndDifferentGroupsAreNone) {
  First at;
  messages::TrailerPart other = part(1);
  other.state = Digest{1, 2};
  other.group = 4;
  at.trailer.contribute(part(0), {}, at.send);
  EXPECT_EQ(at.trailer.receive(other, at.send), "");
  other = part(2);
  other.state = Digest{1, 3};
  EXPECT_EQ(at.trailer.receive(other, at.send), "");
  EXPECT_EQ(at.trailer.trailer()->group, 0);
  EXPECT_NE(at.trailer.trailer()->contradiction.find("member 2 has"), std::string::npos);
}

messages::StateChunks chunks_of(int bucket, const std::string& digests) {
  return {.bucket = bucket, .chunks = blob_of(digests)};
}

// With ZeRO several members keep a bucket's state, and each owner has the facts of its sums.
TEST(TrailerExchange, ShardsArePutInOrderAndReplicasAreCompared) {
  for (const bool differ : {false, true}) {
    First at;
    messages::TrailerPart first = part(0), second = part(1), third = part(2);
    first.sums = {{.bucket = 2}};
    second.sums = {{.bucket = 0}, {.bucket = 3}};
    third.sums = {{.bucket = 1}};
    first.chunks = {chunks_of(1, "one"), chunks_of(2, "two")};
    second.chunks = {chunks_of(0, "zero"), chunks_of(2, differ ? "other" : "two")};
    third.chunks = {chunks_of(0, "zero"), chunks_of(1, "one")};
    at.trailer.contribute(first, {}, at.send);
    EXPECT_EQ(at.trailer.receive(third, at.send), "");
    EXPECT_EQ(at.trailer.receive(second, at.send), "");
    const messages::Trailer& trailer = *at.trailer.trailer();
    ASSERT_EQ(trailer.sums.size(), 4u);
    for (int b = 0; b < 4; ++b) EXPECT_EQ(trailer.sums[static_cast<size_t>(b)].bucket, b);
    ASSERT_EQ(trailer.chunks.size(), 3u) << "one of each bucket";
    for (int b = 0; b < 3; ++b) EXPECT_EQ(trailer.chunks[static_cast<size_t>(b)].bucket, b);
    EXPECT_EQ(trailer.contradiction, differ ? "the keepers of bucket 2 have different states of the optimizer" : "");
  }
}

TEST(TrailerExchange, OtherMembersWaitForTheTrailer) {
  TrailerExchange second(3, 3, 1);
  std::vector<int> to;
  const SendToMember send = [&](int member, const Payload&) { to.push_back(member); };
  EXPECT_EQ(second.missing(), "the trailer");
  second.contribute(part(1), {}, send);
  EXPECT_EQ(to, std::vector<int>{0});
  EXPECT_NE(second.receive(part(2), send), "") << "parts go to the first member";
  EXPECT_NE(second.receive(messages::Trailer{}), "") << "of another number of virtual ranks";
  messages::Trailer trailer;
  trailer.facts.resize(3);
  EXPECT_EQ(second.receive(trailer), "");
  EXPECT_TRUE(second.trailer());
}

}  // namespace
}  // namespace elinvar
