#include "tools/web/connections.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tensor/base/check.h"
#include "tensor/base/threads.h"

namespace elinvar {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kThreads = 2;             // threads that answer
constexpr size_t kMost = 256;              // clients
constexpr size_t kLongestHead = 16 << 10;  // bytes
constexpr auto kForHead = std::chrono::seconds(5), kForAnswer = std::chrono::seconds(30);
constexpr auto kForFarewell =
    std::chrono::seconds(1);  // for the client to close its end, so that the response is not lost
constexpr auto kFull = std::chrono::milliseconds(100);  // pause before the next accept() when no descriptor is left

constexpr const char* kTooLong =
    "HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

struct Client {
  enum class State { asks, waits, reads, leaves };
  int64_t number = 0;
  int socket = -1;
  State state = State::asks;
  Clock::time_point until;
  std::string head = {}, answer = {};
  size_t sent = 0;
};

}  // namespace

class Connections::Loop {
 public:
  Loop(int listener, Answer answer) : listener_(listener), answer_(std::move(answer)) {
    std::signal(SIGPIPE, SIG_IGN);
    ::fcntl(listener_, F_SETFL, ::fcntl(listener_, F_GETFL) | O_NONBLOCK);
    ::fcntl(listener_, F_SETFD, FD_CLOEXEC);
    ::listen(listener_, SOMAXCONN);  // many clients may connect at once
    woken_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (woken_ < 0) fail("cannot make an event of the kernel's");
    for (size_t i = 0; i < kThreads; ++i)
      threads_.push_back(start_thread("web answer", [this](const std::stop_token& stop) { work(stop); }));
    threads_.push_back(start_thread("web server", [this](const std::stop_token& stop) { serve(stop); }));
  }
  ~Loop() {
    for (std::jthread& thread : threads_) thread.request_stop();
    wake();
    threads_.clear();
    for (const Client& client : clients_) ::close(client.socket);
    ::close(listener_);
    ::close(woken_);
  }

 private:
  struct Job {
    int64_t client = 0;
    std::string text;  // first the request's head, then the response
  };

  void wake() {
    const uint64_t one = 1;
    (void)!::write(woken_, &one, sizeof one);
  }

  void work(const std::stop_token& stop) {
    for (;;) {
      std::unique_lock lock(mutex_);
      if (!asked_.wait(lock, stop, [this] { return !heads_.empty(); })) return;
      Job job = std::move(heads_.front());
      heads_.pop_front();
      lock.unlock();
      try {
        job.text = answer_(job.text);
      } catch (const std::exception&) {  // an empty response closes the connection
        job.text.clear();
      }
      lock.lock();
      answers_.push_back(std::move(job));
      wake();
    }
  }

  void serve(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::vector<pollfd> watched{{woken_, POLLIN, 0}, {Clock::now() < full_until_ ? -1 : listener_, POLLIN, 0}};
      auto next = Clock::now() + kForAnswer;
      for (const Client& client : clients_) {
        const bool waits = client.state == Client::State::waits;
        const bool reads = client.state == Client::State::reads;
        watched.push_back({waits ? -1 : client.socket, static_cast<int16_t>(reads ? POLLOUT : POLLIN), 0});
        if (!waits) next = std::min(next, client.until);
      }
      if (watched[1].fd < 0) next = std::min(next, full_until_);
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
      ::poll(watched.data(), watched.size(), static_cast<int>(std::max<int64_t>(0, left)));
      for (size_t i = 0; i < clients_.size(); ++i)
        if (watched[i + 2].revents != 0 && !go_on(clients_[i])) part(clients_[i]);
      take_answers();
      for (Client& client : clients_)
        if (client.state != Client::State::waits && Clock::now() >= client.until) part(client);
      std::erase_if(clients_, [](const Client& client) { return client.socket < 0; });
      if (watched[1].revents != 0) welcome();
    }
  }

  static void part(Client& client) {
    if (client.socket >= 0) ::close(client.socket);
    client.socket = -1;
  }

  void welcome() {
    for (;;) {
      const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (socket < 0) {
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) full_until_ = Clock::now() + kFull;
        if (errno == EINTR || errno == ECONNABORTED) continue;
        return;
      }
      if (clients_.size() >= kMost) {
        const auto oldest = std::find_if(clients_.begin(), clients_.end(),
                                         [](const Client& client) { return client.state != Client::State::waits; });
        if (oldest == clients_.end()) {
          ::close(socket);
          continue;
        }
        part(*oldest);
        clients_.erase(oldest);
      }
      clients_.push_back({.number = ++last_, .socket = socket, .until = Clock::now() + kForHead});
    }
  }

  // Returns false if the client should be disconnected.
  bool go_on(Client& client) {
    if (client.socket < 0) return false;
    if (client.state == Client::State::reads) return write_to(client);
    char bytes[4096];
    const ssize_t n = ::recv(client.socket, bytes, sizeof bytes, 0);
    if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EINTR);
    if (client.state == Client::State::leaves) return true;
    client.head.append(bytes, static_cast<size_t>(n));
    const size_t end = client.head.find("\r\n\r\n");
    if (end == std::string::npos && client.head.size() <= kLongestHead) return true;
    if (end == std::string::npos || end > kLongestHead) return tell(client, kTooLong);
    client.head.resize(end + 4);
    client.state = Client::State::waits;
    const std::lock_guard lock(mutex_);
    heads_.push_back({client.number, std::move(client.head)});
    asked_.notify_one();
    return true;
  }

  void take_answers() {
    uint64_t times = 0;
    (void)!::read(woken_, &times, sizeof times);
    std::vector<Job> answers;
    {
      const std::lock_guard lock(mutex_);
      answers.swap(answers_);
    }
    for (Job& answer : answers)
      for (Client& client : clients_)
        if (client.number == answer.client && !tell(client, std::move(answer.text))) part(client);
  }

  bool tell(Client& client, std::string answer) {
    if (answer.empty()) return false;
    client.state = Client::State::reads;
    client.until = Clock::now() + kForAnswer;
    client.answer = std::move(answer);
    return write_to(client);
  }

  static bool write_to(Client& client) {
    while (client.sent < client.answer.size()) {
      const ssize_t n =
          ::send(client.socket, client.answer.data() + client.sent, client.answer.size() - client.sent, MSG_NOSIGNAL);
      if (n < 0) return errno == EAGAIN || errno == EINTR;
      client.sent += static_cast<size_t>(n);
    }
    client.state = Client::State::leaves;
    client.until = Clock::now() + kForFarewell;
    return ::shutdown(client.socket, SHUT_WR) == 0;
  }

  const int listener_;
  const Answer answer_;
  int woken_ = -1;
  std::vector<Client> clients_;  // oldest first
  int64_t last_ = 0;
  Clock::time_point full_until_;
  std::mutex mutex_;
  std::condition_variable_any asked_;
  std::deque<Job> heads_;
  std::vector<Job> answers_;
  std::vector<std::jthread> threads_;
};

Connections::Connections(int listener, Answer answer) : loop_(std::make_unique<Loop>(listener, std::move(answer))) {}

Connections::~Connections() = default;

}  // namespace elinvar
