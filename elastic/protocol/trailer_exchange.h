#pragma once
// The trailer of a reduction: every member sends the first member a part of it, also a member without rank gradients,
// and the first member combines the parts and sends the trailer to all.
#include <map>
#include <optional>
#include <string>

#include "elastic/protocol/message.h"

namespace elinvar {

class TrailerExchange {
 public:
  // `me` is this member's index among `members`; -1: a listener, which only receives the trailer.
  TrailerExchange(int vranks, int members, int me) : vranks_(vranks), members_(members), me_(me) {}

  // Contributes this member's part. Only the first member's `digests` of the state count.
  void contribute(const messages::TrailerPart& part, const StateDigests& digests, const SendToMember& send);
  bool contributed() const { return contributed_; }
  // Each takes a message, and returns "" or why the message is invalid.
  std::string receive(const messages::TrailerPart& part, const SendToMember& send);
  std::string receive(const messages::Trailer& trailer);

  const std::optional<messages::Trailer>& trailer() const { return trailer_; }  // null until it is complete
  std::string missing() const;                                                  // for people; "": nothing

 private:
  void add(messages::TrailerPart part, const SendToMember& send);

  int vranks_, members_, me_;
  bool contributed_ = false;
  std::map<int, messages::TrailerPart> parts_;
  StateDigests digests_;  // digests of the state in this process
  std::optional<messages::Trailer> trailer_;
};

}  // namespace elinvar
