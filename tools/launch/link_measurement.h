#pragma once
// Measures messages between two processes of this machine, as the workers of a job send them.
#include "comm/zmq_transport.h"

namespace elinvar {

struct MeasuredLink {
  double latency = 0;    // seconds until a small message is there
  double bandwidth = 0;  // bytes a second that each of the two sends, while it gets as many
  double processor = 0;  // processor seconds of a process for a byte that it sends and one that it gets
};

// Takes a fraction of a second. `like`: a job's; over TCP the processes listen on loopback. Call it while this process
// has no other threads.
MeasuredLink measure_link(const ZmqOptions& like);

}  // namespace elinvar
