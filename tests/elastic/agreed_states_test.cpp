#include "elastic/run/agreed_states.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

TEST(AgreedStates, AreTheNewestAndThoseOfTheLedger) {
  const test::TemporaryFolder folder;
  Ledger ledger(folder.path());
  ledger.begin({});
  AgreedStates states(ledger);
  EXPECT_EQ(states.at(1), std::nullopt);
  ledger.record({.step = 1, .batch = {}, .gradient = {}, .state = Digest{1, 1}});
  ledger.record({.step = 2, .batch = {}, .gradient = {}, .state = {}});
  EXPECT_EQ(states.at(1), (Digest{1, 1}));
  EXPECT_EQ(states.at(2), std::nullopt) << "it was not digested";
  states.add(2, {2, 2});
  states.add(3, {3, 3});
  EXPECT_EQ(states.at(2), (Digest{2, 2}));
  EXPECT_EQ(states.at(3), (Digest{3, 3}));
  states.forget_what_is_ahead();
  EXPECT_EQ(states.at(2), (Digest{2, 2}));
  EXPECT_EQ(states.at(3), std::nullopt);
  for (int64_t step = 10; step < 100; ++step) states.add(step, {4, 4});
  EXPECT_EQ(states.at(2), std::nullopt) << "a bounded number is kept";
  EXPECT_EQ(states.at(99), (Digest{4, 4}));
}

}  // namespace
}  // namespace elinvar
