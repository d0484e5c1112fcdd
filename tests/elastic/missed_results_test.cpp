#include "elastic/protocol/missed_results.h"

#include <gtest/gtest.h>

#include "tests/elastic/step_parts.h"

namespace elinvar {
namespace {

using test::gradient_of;
using test::Sent;
using test::StepParts;

struct Missing : StepParts {
  Missing() : StepParts(3, 1) { layout.learn(gradient_of(0)); }
  static Message asks_for_values(int64_t step) {
    return {.sender = 3, .generation = 1, .step = step, .payload = messages::WantValues{}};
  }
  MissedResults missed{"mine", position, layout, inbox, reduction, outbox};
};

TEST(MissedResults, TheMemberThatIsAheadIsAskedOnce) {
  Missing at;
  at.missed.begins_with(/*first=*/1, {{1, 0}, {3, 1}});
  at.missed.listen();
  EXPECT_EQ(at.sent(), Sent{"fetch>3"});
  EXPECT_EQ(at.last.as<messages::Fetch>()->endpoint, "mine");
  EXPECT_TRUE(at.inbox.exchange() && at.inbox.exchange()->listens());
  at.missed.listen();
  EXPECT_EQ(at.sent(), Sent{});
}

TEST(MissedResults, NobodyIsAskedForTheResultsOfAHistoryThatIsOver) {
  Missing at;
  at.missed.begins_with(1, {{3, 1}});
  at.missed.forget();
  at.missed.listen();
  EXPECT_EQ(at.sent(), Sent{});
}

// Whoever asks for values after a step has its trailer; behind a fence it is fetched at once.
TEST(MissedResults, ARequestForValuesTellsOfACommit) {
  Missing at;
  at.missed.asked_for_values(Missing::asks_for_values(0));
  EXPECT_EQ(at.sent(), Sent{}) << "the exchange goes on, and brings the trailer";
  at.position.promised = 2;
  at.missed.fenced();
  EXPECT_EQ(at.sent(), Sent{"fetch>3"});
  at.missed.fenced();
  EXPECT_EQ(at.sent(), Sent{}) << "it listens already";
}

TEST(MissedResults, ARequestForValuesOfAnotherStepTellsNothing) {
  Missing at;
  at.position.promised = 2;
  at.missed.asked_for_values(Missing::asks_for_values(1));
  EXPECT_EQ(at.sent(), Sent{});
}

}  // namespace
}  // namespace elinvar
