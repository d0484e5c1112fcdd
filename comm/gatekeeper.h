#pragma once
// Admits to the inboxes of a ZeroMQ context only who holds the job's key: the CURVE handshake asks it about each
// connection (ZAP, https://rfc.zeromq.org/spec/27). It must exist before the first inbox is bound, and go before the
// context.
#include <thread>

#include "comm/event_signal.h"
#include "comm/job_key.h"

namespace zmq {
class context_t;
}

namespace elinvar {

class Gatekeeper {
 public:
  Gatekeeper(zmq::context_t& context, const JobKey& key);
  ~Gatekeeper();

 private:
  EventSignal stop_;
  std::jthread thread_;
};

}  // namespace elinvar
