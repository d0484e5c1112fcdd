#pragma once
// All messages between the processes of a job: one struct for each kind, listed with its fields in the headers below. A
// message is read and checked once, where it leaves the transport (comm/packet.h); members, coordinators and exchanges
// see only these types. The table in PROTOCOL.md is generated from them.
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "comm/peer.h"
#include "elastic/protocol/group_messages.h"
#include "elastic/protocol/joining_messages.h"
#include "elastic/protocol/membership_messages.h"
#include "elastic/protocol/payload.h"
#include "elastic/protocol/reduction_messages.h"
#include "elastic/protocol/reporting_messages.h"

namespace elinvar {

struct Packet;

inline constexpr int kProtocolVersion = 23;  // the version of PROTOCOL.md, equal in all processes of a job

struct Message {
  PeerId sender = 0;
  int64_t generation = 0, step = 0;  // the sender's; `step` counts completed updates unless the kind says otherwise
  Payload payload = {};

  template <class T>
  const T* as() const {
    return payload.as<T>();
  }
};

// Sends a message to another member of the sender's generation, by its index.
using SendToMember = std::function<void(int member, Payload)>;

// Encodes a message for the transport.
Packet packet_of(Message message, uint64_t run);
// Decodes a packet. Throws UsageError that names the kind, the field, what was expected and what was found.
Message message_of(const Packet& packet);

// Describes a worker to people and programs (train ctl status --json).
nlohmann::json description_of(const WorkerInfo& worker);

// Returns a table with one row for each kind of message: its name, route, fields and meaning (PROTOCOL.md, "Messages").
std::string message_table();

}  // namespace elinvar
