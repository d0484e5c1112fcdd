#include "comm/endpoint.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

// Returns a host without the brackets of IPv6.
std::string bare(const std::string& place) {
  return place.size() > 2 && place.front() == '[' ? place.substr(1, place.size() - 2) : place;
}

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

// Returns at least one address.
Addresses look_up(const Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  // Routes do not depend on the port, but connecting to port 0 fails.
  const std::string port = std::to_string(std::max(1, endpoint.port));
  const int error = ::getaddrinfo(bare(endpoint.place).c_str(), port.c_str(), &hints, &found);
  if (error != 0) fail("cannot find '{}': {}", endpoint.place, ::gai_strerror(error));
  return {found, &::freeaddrinfo};
}

std::string numeric(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST];
  const int error = ::getnameinfo(address, length, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  if (error != 0) fail("cannot write an address: {}", ::gai_strerror(error));
  return address->sa_family == AF_INET6 ? fmt::format("[{}]", text) : text;
}

}  // namespace

Endpoint parse_endpoint(const std::string& text) {
  constexpr const char* kExpected = "tcp://HOST:PORT, ipc://PATH or inproc://NAME";
  const size_t colon = text.find("://");
  Endpoint endpoint;
  if (colon != std::string::npos) endpoint = {text.substr(0, colon), text.substr(colon + 3)};
  const bool known = endpoint.scheme == "tcp" || endpoint.scheme == "ipc" || endpoint.scheme == "inproc";
  check(known && !endpoint.place.empty(), "[endpoint] expected {}, got '{}'", kExpected, text);
  if (endpoint.scheme != "tcp") return endpoint;

  const size_t last = endpoint.place.rfind(':');
  check(last != std::string::npos && last > 0, "[endpoint] expected {}, got '{}'", kExpected, text);
  const char* begin = endpoint.place.data() + last + 1;
  const char* end = endpoint.place.data() + endpoint.place.size();
  const auto [stopped, error] = std::from_chars(begin, end, endpoint.port);
  check(error == std::errc() && stopped == end && endpoint.port >= 0 && endpoint.port <= 65535,
        "[endpoint] expected a port from 0 (any) to 65535, got '{}'", text);
  endpoint.place.resize(last);
  const bool bracketed = endpoint.place.front() == '[' && endpoint.place.back() == ']';
  check(bracketed || endpoint.place.find(':') == std::string::npos,
        "[endpoint] expected an IPv6 address in brackets, got '{}'", text);
  return endpoint;
}

std::string to_string(const Endpoint& endpoint) {
  const std::string text = endpoint.scheme + "://" + endpoint.place;
  return endpoint.scheme == "tcp" ? text + ":" + std::to_string(endpoint.port) : text;
}

bool is_wildcard(const Endpoint& endpoint) {
  const std::string& host = endpoint.place;
  return endpoint.scheme == "tcp" && (host == "*" || host == "0.0.0.0" || host == "[::]");
}

bool leaves_host(const Endpoint& endpoint) {
  if (endpoint.scheme != "tcp") return false;
  const std::string& host = endpoint.place;
  const bool dotted = host.find_first_not_of("0123456789.") == std::string::npos;
  return !(dotted && host.rfind("127.", 0) == 0) && host != "localhost" && host != "[::1]";
}

bool has_name(const Endpoint& endpoint) {
  if (endpoint.scheme != "tcp" || is_wildcard(endpoint)) return false;
  in6_addr ignored;
  return ::inet_pton(AF_INET, endpoint.place.c_str(), &ignored) != 1 &&
         ::inet_pton(AF_INET6, bare(endpoint.place).c_str(), &ignored) != 1;
}

Endpoint resolved(Endpoint endpoint) {
  if (!has_name(endpoint)) return endpoint;
  const Addresses found = look_up(endpoint);
  endpoint.place = numeric(found->ai_addr, found->ai_addrlen);
  return endpoint;
}

std::string address_towards(const Endpoint& peer) {
  check(peer.scheme == "tcp", "[endpoint] expected a tcp endpoint, got '{}'", to_string(peer));
  const Addresses found = look_up(peer);
  // Connecting a datagram socket sends nothing; it only chooses the route.
  for (const addrinfo* at = found.get(); at != nullptr; at = at->ai_next) {
    const int socket = ::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
    if (socket < 0) continue;
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    const bool known = ::connect(socket, at->ai_addr, at->ai_addrlen) == 0 &&
                       ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) == 0;
    ::close(socket);
    if (known) return numeric(reinterpret_cast<const sockaddr*>(&own), length);
  }
  fail("no address of this host leads to {}", to_string(peer));
}

}  // namespace elinvar
