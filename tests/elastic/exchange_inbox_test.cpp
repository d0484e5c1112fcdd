#include "elastic/protocol/exchange_inbox.h"

#include <gtest/gtest.h>

#include "tests/elastic/member_parts.h"

namespace elinvar {
namespace {

using test::MemberParts;
using test::Sent;

struct Inbox : MemberParts {
  CatchingUp catching_up{position, outbox};
  ExchangeInbox inbox{position, catching_up, outbox};

  static Exchange trailer_alone() { return Exchange({.vranks = 4, .members = 2}); }
  static messages::TrailerPart part(int member) {
    messages::TrailerPart part{.member = member, .held = 1};
    for (const int v : {2 * member, 2 * member + 1}) part.facts[v] = {};
    return part;
  }
  Message of_member_1(int64_t generation, int64_t step) const {
    return {.sender = 2, .generation = generation, .step = step, .payload = part(1)};
  }
};

TEST(ExchangeInbox, WhatComesEarlyIsDeliveredWhenTheExchangeBegins) {
  Inbox at;
  at.inbox.receive(at.of_member_1(1, 0));
  EXPECT_EQ(at.inbox.early(), 1u);
  at.inbox.begin(Inbox::trailer_alone());
  EXPECT_EQ(at.inbox.early(), 0u);
  EXPECT_FALSE(at.inbox.exchange()->complete());
  at.inbox.exchange()->contribute({}, Inbox::part(0), {}, at.inbox.sender());
  EXPECT_TRUE(at.inbox.exchange()->complete());
  EXPECT_EQ(at.sent(), Sent{"trailer>2"});
}

TEST(ExchangeInbox, WhatCannotCountIsNotKept) {
  Inbox at;
  at.position.promised = 3;
  at.inbox.receive(at.of_member_1(2, 0));
  EXPECT_EQ(at.inbox.early(), 0u) << "of a generation before the fence";
  at.position.completed = 4;
  at.inbox.receive(at.of_member_1(3, 3));
  EXPECT_EQ(at.inbox.early(), 0u) << "of a step that is complete";
  at.inbox.receive(at.of_member_1(3, 4));
  at.inbox.receive(at.of_member_1(4, 5));
  EXPECT_EQ(at.inbox.early(), 2u);
  at.position.promised = 4;
  at.inbox.prune();
  EXPECT_EQ(at.inbox.early(), 1u);
  at.position.completed = 6;
  at.inbox.prune();
  EXPECT_EQ(at.inbox.early(), 0u);
}

// A result of an earlier transfer could lead a learner past what its new sender knows.
TEST(ExchangeInbox, ResultsOfAnEarlierTransferAreDropped) {
  Inbox at;
  at.position.generation.reset();
  at.position.index = -1;
  at.catching_up.learn();
  at.catching_up.take(0, {.part = 0, .parts = 1, .attempt = 5, .last = true});
  const auto trailer = [](int64_t attempt) {
    return Message{.sender = 2, .generation = kCopyGeneration, .payload = messages::Trailer{.attempt = attempt}};
  };
  at.inbox.receive(trailer(4));
  EXPECT_EQ(at.inbox.early(), 0u);
  at.inbox.receive(trailer(5));
  EXPECT_EQ(at.inbox.early(), 1u);
}

// A member that lacks a result fetches it from another. What its former sender gave it as a learner may have been late,
// and may be of another history than the checkpoint that it has restored since.
TEST(ExchangeInbox, AFencedMemberTakesWhatItFetchedAndNoOldResults) {
  Inbox at;
  at.catching_up.learn();
  at.catching_up.take(0, {.part = 0, .parts = 1, .attempt = 5, .last = true});
  at.catching_up.restore(0);
  at.position.promised = 2;
  at.inbox.begin(Exchange({.vranks = 4, .members = 0, .me = -1}));
  messages::Trailer trailer{.facts = std::vector<RankFacts>(4), .attempt = 5};
  at.inbox.receive({.sender = 2, .generation = kCopyGeneration, .payload = trailer});
  EXPECT_FALSE(at.inbox.exchange()->complete());
  EXPECT_EQ(at.inbox.early(), 0u);
  trailer.attempt = 0;
  at.inbox.receive({.sender = 2, .generation = kCopyGeneration, .payload = trailer});
  EXPECT_TRUE(at.inbox.exchange()->complete());
}

// A fetched result may come after the state was lost: when the steps are repeated, it is no sum of their members.
TEST(ExchangeInbox, WhatWasFetchedIsNotKeptForALaterExchange) {
  Inbox at;
  const Message trailer{.sender = 2,
                        .generation = kCopyGeneration,
                        .step = 1,
                        .payload = messages::Trailer{.facts = std::vector<RankFacts>(4)}};
  at.inbox.receive(trailer);
  at.position.loaded = false;
  at.inbox.receive(trailer);
  at.inbox.begin(Inbox::trailer_alone());
  at.inbox.receive(trailer);
  EXPECT_EQ(at.inbox.early(), 0u);
}

TEST(ExchangeInbox, AMalformedMessageIsTold) {
  Inbox at;
  at.inbox.begin(Inbox::trailer_alone());
  at.inbox.receive({.sender = 2, .generation = 1, .payload = Inbox::part(9)});
  EXPECT_EQ(at.sent(), Sent{"suspect>99"});
  EXPECT_EQ(at.last.as<messages::Suspect>()->peer, 2u);
}

}  // namespace
}  // namespace elinvar
