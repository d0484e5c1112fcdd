#include "comm/zmq_connection.h"

#include <utility>

#include "comm/endpoint.h"
#include "comm/zmq_frames.h"

namespace elinvar {
namespace {

constexpr std::chrono::milliseconds kTimeToNotice{100};  // for ZeroMQ to notice that a connection was shut down

}  // namespace

ZmqConnection::ZmqConnection(zmq::context_t& context, const ZmqOptions& options, PeerId id, const std::string& address)
    : peer(id), endpoint(address), push(context, zmq::socket_type::push) {
  const Endpoint to = parse_endpoint(endpoint);
  push.set(zmq::sockopt::sndhwm, 0);
  push.set(zmq::sockopt::linger, static_cast<int>((options.linger + kTimeToNotice).count()));
  push.set(zmq::sockopt::reconnect_ivl, -1);
  push.set(zmq::sockopt::handshake_ivl, static_cast<int>(options.connect_timeout.count()));
  push.set(zmq::sockopt::ipv6, to.place.front() == '[' ? 1 : 0);
  if (to.scheme != "inproc") {
    if (options.key) {
      push.set(zmq::sockopt::curve_serverkey, options.key->public_key);
      push.set(zmq::sockopt::curve_publickey, options.key->public_key);
      push.set(zmq::sockopt::curve_secretkey, options.key->secret_key);
    }
    monitor = elinvar::monitor(context, push);
    events = monitor.get(zmq::sockopt::fd);
    ready_by = Clock::now() + options.connect_timeout;
  }
  push.connect(endpoint);
}

std::optional<std::string> ZmqConnection::follow() {
  while (monitor) {
    std::optional<ZmqEvent> event = next_event(monitor);
    if (!event) break;
    switch (event->what) {
      case ZmqEvent::What::opened:
        // Had ZeroMQ closed the descriptor before this, the end of the connection would be among the next events.
        shutdown = SocketShutdown(event->descriptor);
        break;
      case ZmqEvent::What::ready:
        ready_by = Clock::time_point::max();
        accepted = true;
        break;
      case ZmqEvent::What::closed:
      case ZmqEvent::What::failed:
        return std::move(event->reason);
    }
  }
  return std::nullopt;
}

void ZmqConnection::give_up() {
  end_monitor(push);
  push.set(zmq::sockopt::linger, 0);
  push.close();
}

}  // namespace elinvar
