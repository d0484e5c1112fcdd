#include "elastic/protocol/facts_outbox.h"

#include <gtest/gtest.h>

#include "tests/elastic/member_parts.h"

namespace elinvar {
namespace {

using test::MemberParts;

struct Facts : MemberParts {
  explicit Facts(int index) : MemberParts(2, index) {}
  FactsOutbox facts{/*report_every=*/3, position, outbox};

  void make(int steps) {
    for (int i = 0; i < steps; ++i) facts.add({.step = position.step++});
  }
  // Returns the steps in the messages since the last call.
  std::vector<int64_t> told() {
    std::vector<int64_t> steps;
    for (const Action& action : outbox.take())
      if (const auto* message = action.message.as<messages::Facts>())
        for (const EncodedFacts& of : message->told.steps) steps.push_back(of.step);
    return steps;
  }
};
using Steps = std::vector<int64_t>;

TEST(FactsOutbox, TheLeaderReportsEachStepOnce) {
  Facts leader(0), other(1);
  for (Facts* at : {&leader, &other}) {
    at->make(2);
    at->facts.report_new();
  }
  EXPECT_EQ(leader.told(), (Steps{0, 1}));
  EXPECT_EQ(other.told(), Steps{});
  EXPECT_FALSE(leader.facts.gathered(3));
  EXPECT_TRUE(leader.facts.gathered(4));
  leader.make(1);
  messages::Alive heartbeat;
  leader.facts.report_new(heartbeat);
  EXPECT_EQ(leader.told(), Steps{});
  ASSERT_EQ(heartbeat.told.steps.size(), 1u);
  EXPECT_EQ(heartbeat.told.steps[0].step, 2);
}

TEST(FactsOutbox, EveryMemberKeepsWhatIsNotConfirmed) {
  Facts at(1);
  at.make(4);
  at.facts.confirm(1);
  at.facts.report_all();
  EXPECT_EQ(at.told(), (Steps{2, 3}));
  EXPECT_EQ(at.facts.before(3).size(), 1u);
  at.facts.forget();
  at.facts.report_all();
  EXPECT_EQ(at.told(), Steps{});
}

}  // namespace
}  // namespace elinvar
