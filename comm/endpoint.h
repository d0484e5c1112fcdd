#pragma once
// Where an inbox is: "tcp://HOST:PORT", "ipc://PATH" or "inproc://NAME".
#include <string>

namespace elinvar {

struct Endpoint {
  std::string scheme;  // tcp, ipc or inproc
  std::string place;   // the host (IPv6 in its brackets), path or name
  int port = 0;        // tcp alone
};

// UsageError if the text is no endpoint.
Endpoint parse_endpoint(const std::string& text);
std::string to_string(const Endpoint& endpoint);

bool is_wildcard(const Endpoint& endpoint);  // every address of this host: nothing that a peer could connect to
bool leaves_host(const Endpoint& endpoint);  // tcp at anything but a loopback address
bool has_name(const Endpoint& endpoint);     // tcp at a name that must be looked up

// With the address that a name stands for; may take as long as the lookup does. Failure if it is not found.
Endpoint resolved(Endpoint endpoint);

// The address of this host from which packets to a tcp endpoint would leave: where a process that is told of one peer
// can itself be reached by it. Failure if there is no route.
std::string address_towards(const Endpoint& peer);

}  // namespace elinvar
