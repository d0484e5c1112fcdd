#pragma once
// Blobs as ZeroMQ's frames and back without a copy, and what its monitors tell. For use within comm/.
#include <optional>
#include <string>
#include <vector>

#include "comm/packet.h"

namespace zmq {
class context_t;
class message_t;
class socket_t;
}  // namespace zmq

namespace elinvar {

// None of these waits.
bool receive_frame(zmq::socket_t& socket, zmq::message_t& frame);  // false if none is here
// The next message's frames, none if none is here; of one with more than `most`, the first so many.
std::vector<Blob> receive_frames(zmq::socket_t& socket, size_t most);
// Owners are released when the bytes are sent or given up, by ZeroMQ's thread. A connection that has just gone drops
// the message.
void send_frames(zmq::socket_t& socket, std::vector<Blob> frames);

// What happened to a socket's connection: it was opened, both sides proved their keys, it ended; or it ended before.
struct ZmqEvent {
  enum class What { opened, ready, closed, failed } what;
  int descriptor = -1;      // opened
  std::string reason = {};  // closed, failed
};
// The returned socket receives the events of `socket` from here on.
zmq::socket_t monitor(zmq::context_t& context, zmq::socket_t& socket);
std::optional<ZmqEvent> next_event(zmq::socket_t& monitor);
// No event of `socket` comes any more. Needed before what receives them is closed: the thread of ZeroMQ that moves all
// bytes of the context waits to send an event, for ever where nobody is left to take it.
void end_monitor(zmq::socket_t& socket);

}  // namespace elinvar
