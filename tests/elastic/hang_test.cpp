#include "elastic/protocol/hang.h"

#include <gtest/gtest.h>

namespace elinvar {
namespace {

// No hang: work that takes long, but not for its kind; waiting; work that is late on all members; and a member that is
// alone.
TEST(Hang, IsToldFromLongWork) {
  Generation generation;
  Roster roster;
  for (int i = 1; i <= 3; ++i) {
    generation.members.push_back(
        {.id = i, .peer = static_cast<PeerId>(i), .endpoint = "", .share = {}, .first_share = {}});
    roster[static_cast<PeerId>(i)] = {.peer = static_cast<PeerId>(i), .id = i};
  }
  const HangLimits limits{.floor = 2, .factor = 10, .unknown = 100, .shared = 5};
  const auto hung = [&] {
    std::vector<PeerId> peers;
    for (const Hung& h : find_hung(generation, roster, limits, 0.1)) peers.push_back(h.peer);
    return peers;
  };
  EXPECT_TRUE(hung().empty());
  roster[2].work = {.what = "a rank gradient", .lasts = 2.5, .usual = 0.1};
  EXPECT_EQ(hung(), std::vector<PeerId>{2});
  EXPECT_EQ(find_hung(generation, roster, limits, 0.1)[0].reason,
            "hangs: at a rank gradient for 2.5 s, which takes 0.1 s");
  // An old heartbeat: others report whether it is silent.
  EXPECT_TRUE(find_hung(generation, roster, limits, 9).empty());
  roster[2].work = {.what = "an evaluation", .lasts = 20, .usual = 3};
  EXPECT_TRUE(hung().empty());
  roster[2].work = {.what = "the first rank gradient", .lasts = 90, .usual = 0};
  EXPECT_TRUE(hung().empty());
  roster[2].work.lasts = 101;
  EXPECT_EQ(hung(), std::vector<PeerId>{2});
  roster[1].work = roster[2].work = {.what = "a rank gradient", .lasts = 2.5, .usual = 0.1};
  EXPECT_TRUE(hung().empty());
  roster[1].work.lasts = 11;
  EXPECT_EQ(hung(), std::vector<PeerId>{1});
  generation.members.resize(1);
  EXPECT_TRUE(hung().empty());
}

// Stuck only if no member is at work, none received anything, and all of that was reported just now.
TEST(Stuck, IsToldFromWaiting) {
  Generation generation;
  Roster roster;
  for (int i = 1; i <= 3; ++i) {
    const PeerId peer = static_cast<PeerId>(i);
    generation.members.push_back({.id = i, .peer = peer, .endpoint = "", .share = {}, .first_share = {}});
    roster[peer] = {.peer = peer, .id = i, .seen = 10, .work = {.idle = 4, .misses = i == 2 ? "the trailer" : ""}};
  }
  ASSERT_TRUE(find_stuck(generation, roster, 3, 10.1));
  EXPECT_EQ(find_stuck(generation, roster, 3, 10.1)->peer, 2u);
  EXPECT_EQ(find_stuck(generation, roster, 3, 10.1)->reason, "the trailer");
  EXPECT_FALSE(find_stuck(generation, roster, 5, 10.1));
  EXPECT_FALSE(find_stuck(generation, roster, 3, 12));
  roster[3].work = {.what = "a rank gradient", .lasts = 100};
  EXPECT_FALSE(find_stuck(generation, roster, 3, 10.1));
  roster[3].work = {.idle = 1};
  EXPECT_FALSE(find_stuck(generation, roster, 3, 10.1));
  roster[3].work = {.idle = 9};
  roster[2].work.misses = "";  // they wait for a message from the coordinator
  EXPECT_FALSE(find_stuck(generation, roster, 3, 10.1));
}

TEST(Stuck, PatienceDoublesAndIsForgotten) {
  Patience patience(3);
  EXPECT_EQ(patience.at(0), 3);
  for (int i = 0; i < 3; ++i) patience.lost(54);
  EXPECT_EQ(patience.at(54), 24);
  EXPECT_EQ(patience.at(1053), 24);
  EXPECT_EQ(patience.at(1054), 3);
  patience.lost(2000);
  EXPECT_EQ(patience.at(2000), 6);
  for (int i = 0; i < 100; ++i) patience.lost(2000);
  EXPECT_EQ(patience.at(2000), 3 * 1024);
  EXPECT_EQ(patience_for(500'000), 5);
}

}  // namespace
}  // namespace elinvar
