#pragma once
// A member's requests to its network: messages to send, with the generation and the step of the member, and connections
// to change.
#include <string>
#include <vector>

#include "elastic/protocol/member_position.h"
#include "elastic/protocol/message.h"

namespace elinvar {

// A message to send, or a connection to change before the next message.
struct Action {
  enum class What { send, connect, disconnect };
  What what = What::send;
  PeerId peer = 0;
  std::string endpoint = {};
  Message message = {};
};

class MemberOutbox {
 public:
  explicit MemberOutbox(const MemberPosition& position) : position_(position) {}

  void connect(PeerId peer, const std::string& endpoint);
  void connect_members(const Generation& generation);  // to all members but itself
  void send(PeerId peer, Payload payload);
  void send(PeerId peer, int64_t generation, int64_t step, Payload payload);
  void report(Payload payload);  // to the coordinator, if there is one
  std::vector<Action> take();

 private:
  const MemberPosition& position_;
  std::vector<Action> actions_;
};

}  // namespace elinvar
