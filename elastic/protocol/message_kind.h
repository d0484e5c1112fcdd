#pragma once
// The description of each kind of message in PROTOCOL.md's table.
namespace elinvar::messages {

struct Kind {
  const char* name;     // on the wire, in events and in fault injection
  const char* route;    // sender and receiver
  const char* meaning;  // a short description
};

inline constexpr const char* kToWorker = "coordinator → worker";
inline constexpr const char* kToCoordinator = "worker → coordinator";
inline constexpr const char* kToMember = "member → member";

}  // namespace elinvar::messages
