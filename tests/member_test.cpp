#include "elastic/member.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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

}  // namespace
}  // namespace elinvar
