#include "tools/web/server.h"

#include <httplib.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tensor/check.h"
#include "tensor/threads.h"

namespace elinvar {
namespace {

constexpr size_t kThreads = 2, kRequestsPerConnection = 100;
constexpr time_t kSeconds = 5;

void refuse(httplib::Response& response, int status, const std::string& why) {
  response.status = status;
  response.set_content(why + "\n", "text/plain; charset=utf-8");
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address.starts_with("127.") || address == "::1";
}

// Threads that are there before the server is: its own pool is made where nobody catches that it cannot be.
class RequestThreads final : public httplib::TaskQueue {
 public:
  explicit RequestThreads(size_t count) {
    for (size_t i = 0; i < count; ++i)
      threads_.push_back(start_thread("web", [this](const std::stop_token& stop) { work(stop); }));
  }
  void enqueue(std::function<void()> request) override {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(request));
    news_.notify_one();
  }
  void shutdown() override {
    for (std::jthread& thread : threads_) thread.request_stop();
    for (std::jthread& thread : threads_) thread.join();
  }

 private:
  // What is waiting when it is told to stop is still done: each holds a connection, which it closes.
  void work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (news_.wait(lock, stop, [&] { return !waiting_.empty(); })) {
      const std::function<void()> request = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      try {
        request();
      } catch (const std::exception&) {  // out of memory: who has asked gets no answer, and all else goes on
      }
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any news_;
  std::deque<std::function<void()>> waiting_;
  std::vector<std::jthread> threads_;  // last: they end before what they use
};

}  // namespace

struct WebServer::Parts {
  httplib::Server server;
  std::unique_ptr<RequestThreads> requests{std::make_unique<RequestThreads>(kThreads)};  // until the server has them
  std::jthread thread;
};

WebServer::WebServer(const std::string& address, int port, Pages pages) : parts_(std::make_unique<Parts>()) {
  httplib::Server& server = parts_->server;
  server.new_task_queue = [this] { return parts_->requests.release(); };
  server.set_payload_max_length(0);
  server.set_read_timeout(kSeconds);
  server.set_write_timeout(kSeconds);
  server.set_keep_alive_max_count(kRequestsPerConnection);
  // The default would let two servers have one port.
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
  parts_->thread = start_thread("web server", [&server] { server.listen_after_bind(); });
  while (!server.is_running()) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // else it cannot be stopped
}

WebServer::~WebServer() {
  parts_->server.stop();
  parts_->thread.join();
}

}  // namespace elinvar
