#pragma once
// The address of an inbox: "tcp://HOST:PORT", "ipc://PATH" or "inproc://NAME".
#include <string>

namespace elinvar {

struct Endpoint {
  std::string scheme;  // tcp, ipc or inproc
  std::string place;   // host (IPv6 in brackets), path or name
  int port = 0;        // tcp only
};

// Throws UsageError if the text is not an endpoint.
Endpoint parse_endpoint(const std::string& text);
std::string to_string(const Endpoint& endpoint);

bool is_wildcard(const Endpoint& endpoint);  // all addresses of this host; a peer cannot connect to it
bool leaves_host(const Endpoint& endpoint);  // tcp at any address but a loopback one
bool has_name(const Endpoint& endpoint);     // tcp at a host name that must be looked up

// Replaces a host name by its address. Blocks for the lookup; throws Failure if the name is not found.
Endpoint resolved(Endpoint endpoint);

// Returns the address of this host from which packets to a tcp endpoint would leave, at which that peer can reach this
// process. Throws Failure if there is no route.
std::string address_towards(const Endpoint& peer);

}  // namespace elinvar
