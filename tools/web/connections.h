#pragma once
// The connections of a server, polled by one thread, so that a slow or silent client does not delay others. A client
// makes one request and has a few seconds for all of it. When there are too many clients, the oldest is disconnected.
#include <functional>
#include <memory>
#include <string>

namespace elinvar {

class Connections {
 public:
  // Returns the response to a request's head, which ends with an empty line; "" closes the connection. Called from two
  // threads of the server.
  using Answer = std::function<std::string(const std::string& head)>;

  // `listener` is a listening socket; this object closes it.
  Connections(int listener, Answer answer);
  ~Connections();
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace elinvar
