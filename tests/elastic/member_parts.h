#pragma once
// An environment in which tests run single parts of a member: a position in generation 1, and the messages that the
// parts send.
#include <string>
#include <vector>

#include "elastic/protocol/member_outbox.h"

namespace elinvar::test {

struct MemberParts {
  static constexpr PeerId kCoordinator = 99;

  // Member `index` of `members`, whose peers are 1, 2, ..; each has two virtual ranks. It has the state after
  // `first_step` updates, with which the generation begins.
  explicit MemberParts(int members = 2, int index = 0, int64_t first_step = 0) {
    position.self = static_cast<PeerId>(index + 1);
    position.coordinator = kCoordinator;
    position.generation = generation(1, members, first_step);
    position.index = index;
    position.promised = 1;
    position.loaded = true;
    position.completed = position.step = first_step;
    position.steps = 10;
  }

  static Generation generation(int64_t number, int members, int64_t first_step) {
    Generation g{.number = number, .first_step = first_step, .members = {}, .next_id = members + 1, .reason = ""};
    for (int m = 0; m < members; ++m) {
      const std::vector<Interval> share = {{2 * m, 2 * m + 2}};
      g.members.push_back(
          {.id = m + 1, .peer = static_cast<PeerId>(m + 1), .endpoint = "e", .share = share, .first_share = share});
    }
    return g;
  }

  // Returns the messages since the last call, as "kind>peer".
  std::vector<std::string> sent() {
    std::vector<std::string> sent;
    for (Action& action : outbox.take()) {
      if (action.what != Action::What::send) continue;
      sent.push_back(std::string(action.message.payload.kind().name) + ">" + std::to_string(action.peer));
      last = std::move(action.message);
    }
    return sent;
  }

  MemberPosition position;
  MemberOutbox outbox{position};
  Message last = {};  // the last message of sent()
};
using Sent = std::vector<std::string>;

}  // namespace elinvar::test
