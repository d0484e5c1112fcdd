#pragma once
// The clients of a server, all waited for in one thread: one that says nothing, goes on byte by byte or does not read
// its answer keeps nobody else waiting. A client makes one request, and has a few seconds for the whole of it; when
// there are too many, whoever has been there for longest has to go.
#include <functional>
#include <memory>
#include <string>

namespace elinvar {

class Connections {
 public:
  // Returns the response to a request's head, which ends with an empty line; "" closes the connection. Called from two
  // threads of the server.
  using Answer = std::function<std::string(const std::string& head)>;

  // Clients of this socket, which listens; it is closed in the end.
  Connections(int listener, Answer answer);
  ~Connections();
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace elinvar
