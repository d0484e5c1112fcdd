#include "tools/web/server.h"

#include <httplib.h>

#include <algorithm>
#include <utility>

#include "tensor/base/check.h"
#include "tools/web/connections.h"

namespace elinvar {
namespace {

// A request and its response in memory, as a stream of cpp-httplib.
class Exchange final : public httplib::Stream {
 public:
  explicit Exchange(const std::string& request) : request_(request) {}
  bool is_readable() const override { return at_ < request_.size(); }
  bool is_writable() const override { return true; }
  ssize_t read(char* to, size_t size) override {
    const size_t count = request_.copy(to, size, at_);
    at_ += count;
    return static_cast<ssize_t>(count);
  }
  ssize_t write(const char* from, size_t size) override {
    answer.append(from, size);
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return 0; }

  std::string answer;

 private:
  const std::string& request_;
  size_t at_ = 0;
};

// Parses requests and finds their pages. Connections (tools/web/connections.h) does the waiting.
class Http final : public httplib::Server {
 public:
  std::string answer(const std::string& request) {
    Exchange exchange(request);
    bool closed = false;
    // Many ranges of one page could exceed its size many times.
    process_request(exchange, /*close_connection=*/true, closed, [](httplib::Request& r) { r.ranges.clear(); });
    return std::move(exchange.answer);
  }
  int listener() { return svr_sock_.exchange(INVALID_SOCKET); }  // passes ownership to the caller
};

void refuse(httplib::Response& response, int status, const std::string& why) {
  response.status = status;
  response.set_content(why + "\n", "text/plain; charset=utf-8");
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address.starts_with("127.") || address == "::1";
}

}  // namespace

struct WebServer::Parts {
  Http http;
  std::optional<Connections> connections;  // destroyed first, since they call http
};

WebServer::WebServer(const std::string& address, int port, Pages pages) : parts_(std::make_unique<Parts>()) {
  Http& server = parts_->http;
  server.set_payload_max_length(0);
  // The default options would allow two servers on one port.
  server.set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  const bool bound = port == 0 ? (port = server.bind_to_any_port(address)) > 0 : server.bind_to_port(address, port);
  if (!bound)
    fail("cannot serve pages at {} port {}: it is taken, or no address of this host", address, std::max(port, 0));
  const std::string place =
      fmt::format("{}:{}", address.find(':') == std::string::npos ? address : "[" + address + "]", port);
  url_ = "http://" + place;
  server.set_pre_routing_handler(
      [place, port, loopback = is_loopback(address)](const httplib::Request& request, httplib::Response& response) {
        response.set_header("X-Content-Type-Options", "nosniff");
        response.set_header("Cache-Control", "no-store");
        response.set_header(
            "Content-Security-Policy",
            "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'");
        const std::string host = request.get_header_value("Host");
        const bool here = !loopback || host == place || host == fmt::format("localhost:{}", port);
        if (here && (request.method == "GET" || request.method == "HEAD"))
          return httplib::Server::HandlerResponse::Unhandled;
        refuse(response, here ? 405 : 403, here ? "only GET" : "this page belongs to another host");
        return httplib::Server::HandlerResponse::Handled;
      });
  server.Get("/.*", [pages = std::move(pages)](const httplib::Request& request, httplib::Response& response) {
    try {
      const std::optional<WebPage> page = pages({request.path, {request.params.begin(), request.params.end()}});
      if (page) response.set_content(page->text, page->type);
      else refuse(response, 404, "no such page");
    } catch (const std::exception& error) {
      refuse(response, 500, error.what());
    } catch (...) {
      refuse(response, 500, "an unknown error");
    }
  });
  parts_->connections.emplace(server.listener(), [&server](const std::string& head) { return server.answer(head); });
}

WebServer::~WebServer() = default;

}  // namespace elinvar
