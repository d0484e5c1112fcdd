#pragma once
// Pages over HTTP, for people and programs that look at a process without disturbing it: in threads of its own, GET and
// HEAD alone, one request a connection (connections.h), no bodies, 16 KiB for a request, of which 8 KiB for a line
// (cpp-httplib). Who asks is not asked, and nothing is encrypted: what is served beyond this host is for all who can
// reach it. On a loopback address a browser that was led here under another host's name is turned away.
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
