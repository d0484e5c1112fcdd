#include "elastic/member.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "elastic/coordinator.h"

namespace elinvar {
namespace {

// A heartbeat that crosses the coordinator's answer on the way is answered as a stranger's.
TEST(Member, TheFirstWordOnItsEndStands) {
  constexpr PeerId kCoordinator = 2;
  const Message expelled{
      .kind = "release", .sender = kCoordinator, .body = {{"what", "expelled"}, {"reason", "a stranger"}}};
  const Message first[] = {{.kind = "refused", .sender = kCoordinator, .body = {{"reason", "its data are others"}}},
                           {.kind = "release", .sender = kCoordinator, .body = {{"what", "left"}, {"reason", ""}}}};
  const char* const expected[] = {"refused", "left"};
  for (int i = 0; i < 2; ++i) {
    Member member(MemberOptions{.self = 4, .steps = 10});
    member.introduce(kCoordinator, nlohmann::json::object());
    member.receive(first[i]);
    member.receive(expelled);
    ASSERT_TRUE(member.outcome().has_value());
    EXPECT_EQ(member.outcome()->what, expected[i]);
  }
}

// No record names a learner: after a takeover only those that feed it can tell of it.
TEST(Member, TellsACoordinatorOfTheLearnersThatItFeeds) {
  Member member(MemberOptions{.self = 4, .steps = 10});
  member.introduce(2, nlohmann::json::object());
  member.receive({.kind = "welcome", .sender = 2, .body = {{"restore", 0}}});
  const Member::Load load = member.take_load();
  member.loaded(load);
  (void)member.take_actions();
  const nlohmann::json feed = {
      {"peer", 7}, {"endpoint", "tcp://127.0.0.1:7"}, {"part", 0}, {"parts", 1}, {"attempt", 1}, {"copies", true}};
  member.receive({.kind = "feed", .sender = 2, .step = 3, .body = feed});
  member.introduce(3, nlohmann::json::object());
  const std::vector<Action> actions = member.take_actions();
  ASSERT_FALSE(actions.empty());
  EXPECT_EQ(actions.back().message.kind, "hello");
  const nlohmann::json expected = {{{"peer", 7}, {"endpoint", "tcp://127.0.0.1:7"}}};
  EXPECT_EQ(actions.back().message.body.at("learners"), nlohmann::json::array({expected[0]}));
}

// The coordinator that takes over, in a world where nothing happens.
TEST(Coordinator, CallsMembersAndTheLearnersTheyTellOf) {
  struct World : CoordinatorWorld {
    bool create(const Generation&) override { return true; }
    bool superseded() override { return false; }
    std::optional<int64_t> facts(int64_t step, const nlohmann::json&) override { return step; }
    int64_t restart() override { return 0; }
    void event(const std::string&, const nlohmann::json&) override {}
    void put_out(PeerId) override {}
    std::string refuse(const nlohmann::json&) override { return ""; }
  } world;
  Generation newest;
  newest.number = 3;
  newest.next_id = 2;
  newest.members = {{.id = 1, .peer = 4, .endpoint = "tcp://127.0.0.1:4", .share = {}, .first_share = {}}};
  Coordinator coordinator({.tenure = 2, .endpoint = "tcp://127.0.0.1:2", .steps = 10}, world, 0,
                          {.newest = newest, .before = {}, .members_alive = true}, 0);
  const auto called = [&] {
    std::vector<PeerId> peers;
    for (const Action& a : coordinator.take_actions())
      if (a.what == Action::What::send && a.message.kind == "coordinator") peers.push_back(a.peer);
    return peers;
  };
  EXPECT_EQ(called(), std::vector<PeerId>{4});
  const nlohmann::json hello = {{"endpoint", "tcp://127.0.0.1:4"},
                                {"active", true},
                                {"promised", 3},
                                {"id", 1},
                                {"learners", {{{"peer", 7}, {"endpoint", "tcp://127.0.0.1:7"}}}}};
  coordinator.receive({.kind = "hello", .sender = 4, .generation = 3, .step = 5, .body = hello}, 0.1);
  EXPECT_EQ(called(), std::vector<PeerId>{7});
}

}  // namespace
}  // namespace elinvar
