#include "elastic/protocol/catching_up.h"

#include <gtest/gtest.h>

#include "tests/elastic/member_parts.h"

namespace elinvar {
namespace {

using test::MemberParts;
using test::Sent;

struct Newcomer : MemberParts {
  Newcomer() {
    position.generation.reset();
    position.index = -1;
  }
  CatchingUp catching_up{position, outbox};
};

TEST(CatchingUp, AStateIsLoadedOnceAllOfItsPartsAreThere) {
  Newcomer at;
  at.catching_up.learn();
  at.catching_up.report_warm();
  EXPECT_EQ(at.sent(), Sent{"warm>99"});
  EXPECT_EQ(at.catching_up.take(3, {.part = 0, .parts = 2, .attempt = 1, .last = true}), CatchingUp::Took::first_piece);
  EXPECT_FALSE(at.catching_up.can_load());
  EXPECT_EQ(at.catching_up.take(3, {.part = 1, .parts = 2, .attempt = 1, .last = true}), CatchingUp::Took::piece);
  EXPECT_TRUE(at.catching_up.can_load());
  const StateLoad load = at.catching_up.load();
  EXPECT_EQ(load.step, 3);
  EXPECT_EQ(load.pieces.size(), 2u);
  EXPECT_FALSE(at.catching_up.can_load());
  at.catching_up.report_ready();
  EXPECT_TRUE(at.catching_up.ready());
  EXPECT_EQ(at.sent(), Sent{"ready>99"});
  EXPECT_EQ(at.last.as<messages::Ready>()->attempt, 1);
  at.catching_up.take(5, {.part = 0, .parts = 1, .attempt = 2});
  EXPECT_FALSE(at.catching_up.ready()) << "it gets another state";
  EXPECT_FALSE(at.catching_up.is_current(load));
  EXPECT_EQ(at.catching_up.take(3, {.part = 0, .parts = 1, .attempt = 1}), CatchingUp::Took::dropped);
}

// What comes late may be of an earlier history.
TEST(CatchingUp, AnAttemptDoesNotCountOnceACheckpointIsRestored) {
  Newcomer at;
  at.catching_up.restore(0);
  EXPECT_EQ(at.catching_up.counts_from(), 0);
  at.catching_up.learn();
  at.catching_up.take(3, {.part = 0, .parts = 1, .attempt = 7, .last = true});
  EXPECT_EQ(at.catching_up.counts_from(), 7);
  at.catching_up.restore(0);
  EXPECT_EQ(at.catching_up.counts_from(), 8);
  EXPECT_EQ(at.catching_up.attempt(), 7) << "the coordinator knows this one";
  at.catching_up.learn();
  EXPECT_EQ(at.catching_up.take(3, {.part = 0, .parts = 1, .attempt = 7}), CatchingUp::Took::dropped);
  EXPECT_EQ(at.catching_up.take(3, {.part = 0, .parts = 1, .attempt = 8}), CatchingUp::Took::first_piece);
  EXPECT_EQ(at.catching_up.counts_from(), 8);
}

// A worker that was evicted in the middle of a transfer sends it nevertheless. With ZeRO nobody else might have what
// the restored state has of the optimizer.
TEST(CatchingUp, ARestoredStateIsNotReplacedUnlessTheCoordinatorSaysSo) {
  Newcomer at;
  at.catching_up.learn();
  at.catching_up.restore(0);
  const StateLoad load = at.catching_up.load();
  at.catching_up.report_ready();
  const messages::StatePieces late{.part = 0, .parts = 1, .attempt = 7, .last = true};
  EXPECT_EQ(at.catching_up.take(3, late), CatchingUp::Took::dropped);
  EXPECT_TRUE(at.catching_up.ready());
  EXPECT_TRUE(at.catching_up.is_current(load));
  at.catching_up.learn();
  EXPECT_EQ(at.catching_up.take(3, late), CatchingUp::Took::first_piece);
  EXPECT_FALSE(at.catching_up.ready());
}

TEST(CatchingUp, WhoCannotReadTheCheckpointLearnsTheState) {
  Newcomer at;
  EXPECT_TRUE(at.catching_up.restore(4));
  EXPECT_FALSE(at.catching_up.restore(4)) << "it is the same order";
  at.catching_up.report_warm();
  EXPECT_EQ(at.sent(), Sent{}) << "no member waits to send it a state";
  const StateLoad load = at.catching_up.load();
  EXPECT_EQ(load.restore, 4);
  at.catching_up.cannot_load(load);
  EXPECT_EQ(at.sent(), Sent{"blind>99"});
  EXPECT_TRUE(at.catching_up.learns());
  at.catching_up.cannot_load(load);
  EXPECT_EQ(at.sent(), Sent{}) << "the order is no longer current";
}

}  // namespace
}  // namespace elinvar
