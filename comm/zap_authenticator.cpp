#include "comm/zap_authenticator.h"

#include <array>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "comm/zmq_frames.h"
#include "tensor/base/check.h"
#include "tensor/base/threads.h"

namespace elinvar {
namespace {

std::string from_z85(const std::string& text) {
  std::string bytes(text.size() / 5 * 4, '\0');
  check(zmq_z85_decode(reinterpret_cast<uint8_t*>(bytes.data()), text.c_str()) != nullptr,
        "[job key] expected a public key of 40 characters, got {}", text.size());
  return bytes;
}

// Frames of a request: version, id, domain, address, identity, mechanism, credentials (the client's public key).
void answer(zmq::socket_t& socket, const std::string& key) {
  std::vector<std::string> request;
  for (const Blob& frame : receive_frames(socket, 8))
    request.emplace_back(reinterpret_cast<const char*>(frame.data), frame.bytes);
  if (request.size() < 2) return;
  const bool whole = request.size() == 7 && request[0] == "1.0" && request[5] == "CURVE";
  const bool admitted = whole && request[6] == key;
  const std::array<std::string, 6> reply{"1.0", request[1], admitted ? "200" : "400", admitted ? "OK" : "another key"};
  for (size_t i = 0; i < reply.size(); ++i)
    socket.send(zmq::buffer(reply[i]), i + 1 < reply.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
}

// If anything fails here, connections stay out: their handshakes time out.
void serve(zmq::socket_t& socket, const std::string& key, int stop) noexcept {
  try {
    for (;;) {
      zmq_pollitem_t items[] = {{socket.handle(), 0, ZMQ_POLLIN, 0}, {nullptr, stop, ZMQ_POLLIN, 0}};
      if (zmq_poll(items, 2, -1) < 0) continue;
      if (items[1].revents != 0) return;
      if (items[0].revents != 0) answer(socket, key);
    }
  } catch (const std::exception&) {
  }
}

}  // namespace

ZapAuthenticator::ZapAuthenticator(zmq::context_t& context, const JobKey& key) {
  zmq::socket_t socket(context, zmq::socket_type::rep);
  socket.set(zmq::sockopt::linger, 0);
  socket.bind("inproc://zeromq.zap.01");
  thread_ =
      start_thread("authenticator", [this, socket = std::move(socket), bytes = from_z85(key.public_key)]() mutable {
        serve(socket, bytes, stop_.descriptor());
      });
}

ZapAuthenticator::~ZapAuthenticator() { stop_.set(); }

}  // namespace elinvar
