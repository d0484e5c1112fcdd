#pragma once
// A small HTTP server for people and programs that watch a process. It has threads of its own and serves GET and HEAD
// only, one request a connection (connections.h), without bodies; a request has at most 16 KiB, a line 8 KiB
// (cpp-httplib). There is no authentication and no encryption: pages served on a non-loopback address are public to all
// who can reach it. On a loopback address requests for another host's name are refused (DNS rebinding).
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace elinvar {

struct WebRequest {
  std::string path;                          // "/metrics"
  std::map<std::string, std::string> query;  // of what follows a '?'
};

struct WebPage {
  std::string type;  // "text/html; charset=utf-8"
  std::string text;
};

class WebServer {
 public:
  // The page that is asked for; none: 404. It is called from threads of the server, from several at once, and an
  // exception is the client's 500.
  using Pages = std::function<std::optional<WebPage>(const WebRequest& request)>;

  // `address` is one of this host, "127.0.0.1" say; port 0 is any that is free. Failure if it cannot be had. From here
  // on the process ignores SIGPIPE.
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
