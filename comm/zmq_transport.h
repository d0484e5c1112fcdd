#pragma once
// Transport over ZeroMQ: the inbox is a bound PULL socket, each outgoing connection a PUSH socket that never
// reconnects. A socket monitor beside each connection tells of its end within milliseconds: the peer died, nobody
// listens, or its key is another. Queues are unbounded: who sends must know what the receiver can hold.
//
// Threads: ZeroMQ's own move the bytes. A connection's socket is used by whoever sends, one at a time; the inbox and
// the monitors by the thread that waits. Nothing runs while nothing happens. A connection takes five file descriptors.
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "comm/job_key.h"
#include "comm/transport.h"

namespace elinvar {

struct ZmqOptions {
  // tcp://ADDRESS:PORT (port 0: any that is free), ipc://PATH, or inproc://NAME within the process, which neither
  // reports lost connections nor looks at keys.
  std::string listen = "tcp://127.0.0.1:0";
  std::string advertise = {};      // tcp: the host where peers find this one; needed for tcp://*:PORT
  std::optional<JobKey> key = {};  // needed to listen on anything but loopback; then both sides must hold it
  PacketLimits limits = {};
  std::chrono::milliseconds connect_timeout{5000};  // from connect() to the end of the handshake
  std::chrono::milliseconds linger{1000};           // at most this long is tried to send what a closed connection holds
  int io_threads = 1;                               // a core moves some GB/s, encrypted much less (`bench transport`)
};

// Its end may take as long as `linger`. UsageError for an endpoint that is none, or that needs a key; Failure if it
// cannot be bound.
std::unique_ptr<Transport> make_zmq_transport(const ZmqOptions& options = {});

}  // namespace elinvar
