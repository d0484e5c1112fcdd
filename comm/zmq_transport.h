#pragma once
// Transport over ZeroMQ. The inbox is a bound PULL socket, each outgoing connection a PUSH socket that never
// reconnects. The socket monitor of a connection reports its end within milliseconds: the peer died, nobody listens, or
// its key is another. Queues are unbounded, so senders must know what the receiver can hold.
//
// ZeroMQ's threads move the bytes. The threads that send use a connection's socket one at a time; the thread that waits
// uses the inbox and the monitors. No thread wakes up while nothing happens. A connection takes five file descriptors.
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "comm/job_key.h"
#include "comm/transport.h"

namespace elinvar {

struct ZmqOptions {
  // tcp://ADDRESS:PORT (port 0: any free port), ipc://PATH, or inproc://NAME within the process, which neither reports
  // lost connections nor checks keys.
  std::string listen = "tcp://127.0.0.1:0";
  std::string advertise = {};      // tcp: the host at which peers reach this one; required for tcp://*:PORT
  std::optional<JobKey> key = {};  // required to listen on anything but loopback; then both sides must hold it
  PacketLimits limits = {};
  std::chrono::milliseconds connect_timeout{5000};  // from connect() to the end of the handshake
  std::chrono::milliseconds linger{1000};           // how long a closed connection may still send what is queued
  int io_threads = 1;                               // a core moves some GB/s, encrypted much less (`bench transport`)
};

// Throws UsageError for a malformed endpoint or one that needs a key, Failure if it cannot be bound. The destructor may
// take as long as `linger`.
std::unique_ptr<Transport> make_zmq_transport(const ZmqOptions& options = {});

}  // namespace elinvar
