// Messages of a coordinator that takes over, to workers and to people.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "elastic/protocol/coordinator.h"

namespace elinvar {
namespace {

// A world that does nothing.
struct IdleWorld : CoordinatorWorld {
  bool create(const Generation&) override { return true; }
  bool superseded() override { return false; }
  std::optional<int64_t> facts(const std::vector<StepFacts>& steps) override { return steps.back().step; }
  int64_t restart() override { return 0; }
  void event(const std::string&, const nlohmann::json&) override {}
  void evict(PeerId) override {}
  std::string refuse(const messages::Hello&) override { return ""; }
};

TEST(Coordinator, CallsMembersAndTheLearnersTheyTellOf) {
  IdleWorld world;
  Generation newest;
  newest.number = 3;
  newest.next_id = 2;
  newest.members = {{.id = 1, .peer = 4, .endpoint = "tcp://127.0.0.1:4", .share = {}, .first_share = {}}};
  Coordinator coordinator({.term = 2, .endpoint = "tcp://127.0.0.1:2", .steps = 10}, world, 0,
                          {.newest = newest, .before = {}, .members_alive = true}, 0);
  const auto called = [&] {
    std::vector<PeerId> peers;
    for (const Action& a : coordinator.take_actions())
      if (a.what == Action::What::send && a.message.as<messages::NewCoordinator>()) peers.push_back(a.peer);
    return peers;
  };
  EXPECT_EQ(called(), std::vector<PeerId>{4});
  const messages::Hello hello{.about = {.endpoint = "tcp://127.0.0.1:4"},
                              .active = true,
                              .promised = 3,
                              .id = 1,
                              .learners = {{7, "tcp://127.0.0.1:7"}}};
  coordinator.receive({.sender = 4, .generation = 3, .step = 5, .payload = hello}, 0.1);
  EXPECT_EQ(called(), std::vector<PeerId>{7});
}

TEST(Coordinator, TellsThatAllAreSilentAndCanBeStoppedThen) {
  IdleWorld world;
  Coordinator coordinator({.term = 1, .endpoint = "tcp://127.0.0.1:2", .steps = 10, .hold = 100}, world, 0, {}, 0);
  coordinator.receive({.sender = 4, .payload = messages::Hello{.about = {.endpoint = "tcp://127.0.0.1:4"}}}, 0);
  coordinator.receive({.sender = 4, .payload = messages::Ready{.attempt = 0}}, 0);
  ASSERT_EQ(coordinator.job().phase, Coordinator::Phase::running);
  EXPECT_FALSE(coordinator.status(0).contains("holding"));
  for (double now = 0; now < 5; now += 0.1) coordinator.tick(now);
  EXPECT_EQ(coordinator.status(5).at("phase"), "holding");
  EXPECT_EQ(coordinator.status(5).at("holding").at("limit"), 100);
  EXPECT_FALSE(coordinator.job().ending);
  coordinator.ask_stop("stopped by train ctl", 6);
  ASSERT_TRUE(coordinator.job().ending);
  EXPECT_EQ(coordinator.job().ending->what, "failed");
}

}  // namespace
}  // namespace elinvar
