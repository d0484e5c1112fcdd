#include "elastic/protocol/member_outbox.h"

#include <utility>

namespace elinvar {

void MemberOutbox::connect(PeerId peer, const std::string& endpoint) {
  actions_.push_back({Action::What::connect, peer, endpoint, {}});
}

void MemberOutbox::connect_members(const Generation& generation) {
  for (const GenerationMember& m : generation.members)
    if (m.peer != position_.self) connect(m.peer, m.endpoint);
}

void MemberOutbox::send(PeerId peer, Payload payload) {
  send(peer, position_.number(), position_.completed, std::move(payload));
}

void MemberOutbox::send(PeerId peer, int64_t generation, int64_t step, Payload payload) {
  actions_.push_back(
      {Action::What::send, peer, {}, {.generation = generation, .step = step, .payload = std::move(payload)}});
}

void MemberOutbox::report(Payload payload) {
  if (position_.coordinator != 0) send(position_.coordinator, std::move(payload));
}

std::vector<Action> MemberOutbox::take() { return std::exchange(actions_, {}); }

}  // namespace elinvar
