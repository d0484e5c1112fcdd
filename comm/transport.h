#pragma once
// Messages between the processes of a job. Every process has one inbox, whose endpoint it tells the others, and one
// outgoing connection to each peer that it talks to. Messages of one sender arrive in their order; one that was sent
// may be lost only if the connection is, and a lost connection is never mended behind the caller's back: it is
// reported, and the protocol above decides (elastic/PROTOCOL.md). Inbox and outgoing connections know nothing of each
// other: what a peer sent before it died may arrive after the connection to it was reported lost.
#include <chrono>
#include <optional>
#include <string>

#include "comm/packet.h"

namespace elinvar {

struct Arrival {
  enum class What { message, lost, refused, woken, timeout };
  What what = What::timeout;
  Packet packet = {};       // message
  PeerId peer = 0;          // lost: the outgoing connection to this peer is closed
  std::string reason = {};  // lost, and refused: a message or a connection was turned away; for the log
};

class Transport {
 public:
  using Clock = std::chrono::steady_clock;
  virtual ~Transport() = default;

  virtual const std::string& endpoint() const = 0;  // of the inbox, as peers must connect to it

  // From any thread; none of them blocks. An endpoint that cannot be reached, or is none, is reported as lost; so is a
  // host's name, whose lookup could take long: resolved() of comm/endpoint.h makes it an address. Sending to a peer
  // that was never connected or is lost drops the message; a message that no peer would accept is a UsageError.
  virtual void connect(PeerId peer, const std::string& endpoint) = 0;  // nothing if connected there already
  virtual void send(PeerId peer, Packet packet) = 0;
  virtual void disconnect(PeerId peer) = 0;  // after what was queued is sent; no `lost` is reported
  // Makes wait() return `woken`, once for any number of calls before it; a signal handler may call it too.
  virtual void wake() = 0;

  // From one thread: the next arrival, or `timeout` once the deadline has passed.
  virtual Arrival wait(Clock::time_point deadline) = 0;
};

}  // namespace elinvar
