#pragma once
// Messages between the processes of a job. Every process has one inbox, whose endpoint it tells the others, and one
// outgoing connection to each peer that it sends to. Messages of one sender arrive in order. A message is lost only if
// its connection is; a transport reports lost connections and never reconnects by itself, so that the protocol above
// decides (elastic/PROTOCOL.md). The inbox is independent of outgoing connections: what a peer sent before it died may
// arrive after the connection to it was reported lost.
#include <chrono>
#include <optional>
#include <string>

#include "comm/packet.h"

namespace elinvar {

struct Arrival {
  enum class What { message, lost, refused, woken, timeout };
  What what = What::timeout;
  Packet packet = {};       // message
  PeerId peer = 0;          // lost: the peer whose outgoing connection is closed
  std::string reason = {};  // lost; refused: why a message or a connection was rejected, for the log
  bool accepted = false;    // lost: whether the peer had accepted the connection, after it checked the key
};

class Transport {
 public:
  using Clock = std::chrono::steady_clock;
  virtual ~Transport() = default;

  virtual const std::string& endpoint() const = 0;  // of the inbox; peers connect to it

  // These are thread-safe and do not block. A malformed or unreachable endpoint is reported as lost, and so is a host
  // name, whose lookup could take long: resolve it first (resolved() of comm/endpoint.h). A message to a peer that was
  // never connected or is lost is dropped; one that no peer would accept is a UsageError.
  virtual void connect(PeerId peer, const std::string& endpoint) = 0;  // does nothing if connected to it already
  virtual void send(PeerId peer, Packet packet) = 0;
  virtual void disconnect(PeerId peer) = 0;  // after sending what is queued; reports no `lost`
  // Makes wait() return `woken`, once for any number of calls before it. Signal handlers may call it, too.
  virtual void wake() = 0;

  // Returns the next arrival, or `timeout` once the deadline has passed. Only one thread may call it.
  virtual Arrival wait(Clock::time_point deadline) = 0;
};

}  // namespace elinvar
