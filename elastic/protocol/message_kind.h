#pragma once
// What PROTOCOL.md's table says of each kind of message.
namespace elinvar::messages {

struct Kind {
  const char* name;     // on the wire, in events and in fault injection
  const char* route;    // who sends it to whom
  const char* meaning;  // in a few words
};

inline constexpr const char* kToWorker = "coordinator → worker";
inline constexpr const char* kToCoordinator = "worker → coordinator";
inline constexpr const char* kToMember = "member → member";

}  // namespace elinvar::messages
