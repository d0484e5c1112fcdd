#pragma once
// One outgoing connection of a ZeroMQ transport: a PUSH socket, and the monitor that tells when it ends. For use within
// comm/zmq_transport.cpp.
//
// Note [Ending a connection]: ZeroMQ 4.3 aborts the process if a connection breaks just when its socket is closed with
// a message half sent, also if it is closed because its linger time is over. So the transport first shuts the
// connection down by a descriptor of its own, and closes the socket when ZeroMQ has noticed.
#include <chrono>
#include <optional>
#include <string>
#include <zmq.hpp>

#include "comm/socket_shutdown.h"
#include "comm/transport.h"
#include "comm/zmq_transport.h"

namespace elinvar {

struct ZmqConnection {
  using Clock = Transport::Clock;

  // Begins to connect; `address` is an endpoint without a host name. Throws zmq::error_t.
  ZmqConnection(zmq::context_t& context, const ZmqOptions& options, PeerId id, const std::string& address);

  // Reads the monitor's events. Returns why the connection ended, if it did.
  std::optional<std::string> follow();
  // Closes the socket now; messages that are not sent yet are lost.
  void give_up();

  const PeerId peer;
  const std::string endpoint;

  // Guarded by the transport's mutex.
  zmq::socket_t push;
  bool leaving = false;  // disconnected, but queued messages are still being sent

  // Used by the thread that waits.
  zmq::socket_t monitor;    // closed for inproc
  int events = -1;          // descriptor of the monitor
  bool looked = false;      // the monitor was found empty, so its descriptor tells of the next event
  SocketShutdown shutdown;  // set once the connection is open
  bool accepted = false;    // the handshake has succeeded
  Clock::time_point ready_by = Clock::time_point::max();
  Clock::time_point leave_by = Clock::time_point::max();
};

}  // namespace elinvar
