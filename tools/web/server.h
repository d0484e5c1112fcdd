#pragma once
// A small HTTP server for people and programs that watch a process. It has its own threads and serves only GET and
// HEAD, one request per connection (connections.h), without bodies; a request has at most 16 KiB, a line 8 KiB
// (cpp-httplib). There is no authentication and no encryption: pages on a non-loopback address are public to all who
// can reach it. On a loopback address requests for another host's name are rejected (DNS rebinding).
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace elinvar {

struct WebRequest {
  std::string path;                          // "/metrics"
  std::map<std::string, std::string> query;  // parameters after '?'
};

struct WebPage {
  std::string type;  // "text/html; charset=utf-8"
  std::string text;
};

class WebServer {
 public:
  // Returns the requested page; nothing: 404. Called from several threads of the server at once; an exception becomes
  // the client's 500.
  using Pages = std::function<std::optional<WebPage>(const WebRequest& request)>;

  // `address`: one of this host's, for example "127.0.0.1"; port 0: any free one. Throws Failure if it is not
  // available. Makes the process ignore SIGPIPE.
  WebServer(const std::string& address, int port, Pages pages);
  ~WebServer();
  WebServer(const WebServer&) = delete;
  WebServer& operator=(const WebServer&) = delete;

  const std::string& url() const { return url_; }  // "http://127.0.0.1:9100"

 private:
  struct Parts;
  std::string url_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace elinvar
