#pragma once
// Authenticates the peers of a ZeroMQ context: its inboxes accept only connections that hold the job's key. The CURVE
// handshake asks about each connection by the ZeroMQ Authentication Protocol (https://rfc.zeromq.org/spec/27). Create
// it before the first inbox is bound, and destroy it before the context.
#include <thread>

#include "comm/event_signal.h"
#include "comm/job_key.h"

namespace zmq {
class context_t;
}

namespace elinvar {

class ZapAuthenticator {
 public:
  ZapAuthenticator(zmq::context_t& context, const JobKey& key);
  ~ZapAuthenticator();

 private:
  EventSignal stop_;
  std::jthread thread_;
};

}  // namespace elinvar
