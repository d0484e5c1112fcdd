#pragma once
// The exchange, if any, in which a member takes part or to which it listens, and messages that arrived before it began.
#include <functional>
#include <optional>
#include <vector>

#include "elastic/protocol/catching_up.h"
#include "elastic/protocol/exchange.h"
#include "elastic/protocol/member_outbox.h"

namespace elinvar {

class ExchangeInbox {
 public:
  ExchangeInbox(const MemberPosition& position, const CatchingUp& catching_up, MemberOutbox& outbox)
      : position_(position), catching_up_(catching_up), outbox_(outbox) {}

  void begin(Exchange exchange);  // passes the early messages to the exchange
  Exchange* exchange() { return exchange_ ? &*exchange_ : nullptr; }
  const Exchange* exchange() const { return exchange_ ? &*exchange_ : nullptr; }
  void end() { exchange_.reset(); }
  SendToMember sender();                      // sends to members of the current generation
  static bool takes(const Message& message);  // whether the message belongs to an exchange
  void receive(const Message& message);
  void prune();  // drops early messages that no longer count
  void clear_early() { early_.clear(); }
  size_t early() const { return early_.size(); }

 private:
  const MemberPosition& position_;
  const CatchingUp& catching_up_;
  MemberOutbox& outbox_;
  std::optional<Exchange> exchange_;  // the exchange of (generation, completed)
  std::vector<Message> early_;
};

}  // namespace elinvar
