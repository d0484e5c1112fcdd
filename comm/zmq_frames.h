#pragma once
// Sends blobs as ZeroMQ frames and receives them, without a copy; reads the events of socket monitors. For use within
// comm/.
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

// None of these functions waits.
bool receive_frame(zmq::socket_t& socket, zmq::message_t& frame);  // false if there is none
// Returns the frames of the next message, but at most the first `most`; empty if there is no message.
std::vector<Blob> receive_frames(zmq::socket_t& socket, size_t most);
// A thread of ZeroMQ releases the owners when the bytes are sent or dropped. The message is dropped if the connection
// has just ended.
void send_frames(zmq::socket_t& socket, std::vector<Blob> frames);

// An event of a socket's connection. `opened`: it exists; `ready`: both sides have proved their keys; `closed`: it
// ended; `failed`: it ended before it was ready.
struct ZmqEvent {
  enum class What { opened, ready, closed, failed } what;
  int descriptor = -1;      // opened
  std::string reason = {};  // closed, failed
};
// Returns a socket that receives the events of `socket` from now on.
zmq::socket_t monitor(zmq::context_t& context, zmq::socket_t& socket);
std::optional<ZmqEvent> next_event(zmq::socket_t& monitor);
// Stops the events of `socket`. Call it before closing the socket that receives them: ZeroMQ's I/O thread waits to send
// an event, forever if there is no receiver, and then moves no more bytes of the context.
void end_monitor(zmq::socket_t& socket);

}  // namespace elinvar
