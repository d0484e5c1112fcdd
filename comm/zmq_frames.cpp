#include "comm/zmq_frames.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>
#include <zmq.hpp>

#include "tensor/base/check.h"

// The thread sanitizer sees the calls that these libraries make, but not the atomics that order them. ZeroMQ writes
// addresses to streams, whose calls come from the standard library; nothing of ours writes to streams.
#ifdef __SANITIZE_THREAD__
extern "C" const char* __tsan_default_suppressions() {
  return "called_from_lib:libzmq.so\ncalled_from_lib:libsodium.so\nrace:std::basic_streambuf<char\n";
}
#endif

namespace elinvar {
namespace {

constexpr size_t kCopiedBytes = 4096;  // frames up to this size are copied when sent
constexpr size_t kAlignment = 8;       // of received blobs, in bytes

// Incremented when something is passed to ZeroMQ and read when it comes back. ZeroMQ orders the two; this shows the
// order to race detectors, which do not see ZeroMQ's atomics.
std::atomic<uint64_t> handed_over{0};

void release(void*, void* owner) {
  (void)handed_over.load(std::memory_order_acquire);
  delete static_cast<std::shared_ptr<const void>*>(owner);
}

zmq::message_t frame_of(Blob blob) {
  if (blob.bytes <= kCopiedBytes) return zmq::message_t(blob.data, blob.bytes);
  auto owner = std::make_unique<std::shared_ptr<const void>>(std::move(blob.owner));
  zmq::message_t frame(const_cast<std::byte*>(blob.data), blob.bytes, &release, owner.get());
  (void)owner.release();
  return frame;
}

// Large frames stay where ZeroMQ received them. Small ones may be anywhere in its buffer and are copied if misaligned.
Blob blob_of(zmq::message_t frame) {
  auto owner = std::make_shared<zmq::message_t>(std::move(frame));
  const auto* data = static_cast<const std::byte*>(owner->data());
  const size_t bytes = owner->size();
  if (reinterpret_cast<uintptr_t>(data) % kAlignment == 0) return {std::move(owner), data, bytes};
  const std::shared_ptr<std::byte[]> copy(new std::byte[bytes]);
  std::memcpy(copy.get(), data, bytes);
  return {copy, copy.get(), bytes};
}

std::string handshake_failure(int event, int value) {
  if (event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) return "the key is another";
  if (event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL) {
    if (value == ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC) return "the key is another";
    if (value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH) return "one side has a key, the other has none";
    return fmt::format("the handshake failed (ZeroMQ's protocol error {:#x})", value);
  }
  if (value == EPIPE || value == ECONNRESET) return "the other side ended the handshake; has it the same key?";
  return fmt::format("the handshake failed: {}", zmq_strerror(value));
}

}  // namespace

bool receive_frame(zmq::socket_t& socket, zmq::message_t& frame) {
  while (zmq_msg_recv(frame.handle(), socket.handle(), ZMQ_DONTWAIT) < 0) {
    if (zmq_errno() == EINTR) continue;
    invariant(zmq_errno() == EAGAIN, "a socket can be received from");
    return false;
  }
  (void)handed_over.load(std::memory_order_acquire);
  return true;
}

std::vector<Blob> receive_frames(zmq::socket_t& socket, size_t most) {
  std::vector<Blob> frames;
  zmq::message_t frame;
  // Either all frames of a message have arrived or none.
  for (bool more = true; more && receive_frame(socket, frame);) {
    more = frame.more();
    if (frames.size() < most) frames.push_back(blob_of(std::move(frame)));
  }
  return frames;
}

void send_frames(zmq::socket_t& socket, std::vector<Blob> frames) {
  for (size_t i = 0; i < frames.size(); ++i) {
    zmq::message_t frame = frame_of(std::move(frames[i]));
    handed_over.fetch_add(1, std::memory_order_release);
    const int flags = ZMQ_DONTWAIT | (i + 1 < frames.size() ? ZMQ_SNDMORE : 0);
    while (zmq_msg_send(frame.handle(), socket.handle(), flags) < 0)
      if (zmq_errno() != EINTR) return;
  }
}

zmq::socket_t monitor(zmq::context_t& context, zmq::socket_t& socket) {
  constexpr int kEvents = ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED |
                          ZMQ_EVENT_CLOSED | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                          ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
  static std::atomic<uint64_t> next{0};
  const std::string name = fmt::format("inproc://monitor-{}", next++);
  if (zmq_socket_monitor(socket.handle(), name.c_str(), kEvents) != 0) throw zmq::error_t();
  zmq::socket_t events(context, zmq::socket_type::pair);
  events.set(zmq::sockopt::linger, 0);
  events.connect(name);
  return events;
}

void end_monitor(zmq::socket_t& socket) {
  if (socket) (void)zmq_socket_monitor(socket.handle(), nullptr, 0);
}

std::optional<ZmqEvent> next_event(zmq::socket_t& monitor) {
  zmq::message_t frame;
  if (!receive_frame(monitor, frame)) return std::nullopt;
  uint16_t event = 0;
  int32_t value = 0;
  invariant(frame.size() == sizeof event + sizeof value, "an event of a monitor has 6 bytes");
  std::memcpy(&event, frame.data(), sizeof event);
  std::memcpy(&value, static_cast<const char*>(frame.data()) + sizeof event, sizeof value);
  if (frame.more()) (void)receive_frame(monitor, frame);  // an endpoint, which is not needed
  using What = ZmqEvent::What;
  if (event == ZMQ_EVENT_CONNECTED) return ZmqEvent{.what = What::opened, .descriptor = value};
  if (event == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) return ZmqEvent{.what = What::ready};
  if (event == ZMQ_EVENT_DISCONNECTED) return ZmqEvent{.what = What::closed, .reason = "the connection was closed"};
  if (event == ZMQ_EVENT_CLOSED) return ZmqEvent{.what = What::closed, .reason = "nobody listens there"};
  return ZmqEvent{.what = What::failed, .reason = handshake_failure(event, value)};
}

}  // namespace elinvar
