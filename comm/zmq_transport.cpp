#include "comm/zmq_transport.h"

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <zmq.hpp>

#include "comm/endpoint.h"
#include "comm/event_signal.h"
#include "comm/zap_authenticator.h"
#include "comm/zmq_connection.h"
#include "comm/zmq_frames.h"
#include "tensor/base/check.h"
#include "tensor/base/threads.h"

namespace elinvar {
namespace {

using Clock = Transport::Clock;

constexpr int kMostSockets = 1 << 14;  // per context; a connection has three
constexpr int kFilesBesides = 64;      // descriptors of a context and a few connections, in addition to two per thread
constexpr int kStreak = 16;            // messages received in a row before monitors and signals are checked again

// Names of inproc endpoints are valid within a context, so all transports of the process that listen on one share it.
std::shared_ptr<zmq::context_t> context_for(const Endpoint& listen, int io_threads) {
  const auto make = [&] {
    // ZeroMQ aborts the process if it gets no thread (one more than io_threads closes sockets) or no file descriptor.
    // So a context is created only if a job of a few workers would fit.
    check_threads_left(io_threads + 1, "ZeroMQ");
    std::deque<EventSignal> files;
    for (int i = 0; i < 2 * (io_threads + 1) + kFilesBesides; ++i) files.emplace_back();
    return std::make_shared<zmq::context_t>(io_threads, kMostSockets);
  };
  if (listen.scheme != "inproc") return make();
  static std::mutex mutex;
  static std::weak_ptr<zmq::context_t> shared;
  const std::lock_guard lock(mutex);
  std::shared_ptr<zmq::context_t> context = shared.lock();
  if (!context) shared = context = make();
  return context;
}

Arrival refusal(std::string reason) { return {.what = Arrival::What::refused, .reason = std::move(reason)}; }

class ZmqTransport : public Transport {
 public:
  ZmqTransport(const ZmqOptions& options, const Endpoint& listen)
      : options_(options), local_(listen.scheme == "inproc"), context_(context_for(listen, options.io_threads)) {
    if (options_.key && !local_) authenticator_.emplace(*context_, *options_.key);
    inbox_ = zmq::socket_t(*context_, zmq::socket_type::pull);
    inbox_.set(zmq::sockopt::linger, 0);
    inbox_.set(zmq::sockopt::rcvhwm, 0);
    inbox_.set(zmq::sockopt::maxmsgsize,
               static_cast<int64_t>(std::max(options_.limits.blob_bytes, options_.limits.body_bytes)));
    inbox_.set(zmq::sockopt::handshake_ivl, static_cast<int>(options_.connect_timeout.count()));
    inbox_.set(zmq::sockopt::ipv6, listen.place.front() == '[' ? 1 : 0);
    if (options_.key && !local_) {
      inbox_.set(zmq::sockopt::curve_server, true);
      inbox_.set(zmq::sockopt::curve_secretkey, options_.key->secret_key);
    }
    if (!local_) inbox_events_ = monitor(*context_, inbox_);
    if (!local_) inbox_news_ = inbox_events_.get(zmq::sockopt::fd);
    inbox_descriptor_ = inbox_.get(zmq::sockopt::fd);
    inbox_.bind(to_string(listen));
    endpoint_ = inbox_.get(zmq::sockopt::last_endpoint);
    if (!options_.advertise.empty()) {
      Endpoint bound = parse_endpoint(endpoint_);
      bound.place = options_.advertise;
      endpoint_ = to_string(resolved(bound));
    }
  }

  ~ZmqTransport() override {
    watched_.clear();
    std::vector<SocketShutdown> unsent;
    for (auto& [peer, connection] : peers_) leaving_.push_back(std::move(connection));
    for (const auto& connection : leaving_) {
      if (connection->follow()) connection->give_up();
      end_monitor(connection->push);
      connection->push.close();
      connection->monitor.close();
      if (connection->shutdown) unsent.push_back(std::move(connection->shutdown));
    }
    end_monitor(inbox_);
    inbox_.close();
    inbox_events_.close();
    authenticator_.reset();
    signal_.clear();
    // The context ends when all is sent or the linger time of its sockets is over. Before the latter, connections must
    // be shut down: Note [Ending a connection].
    std::jthread closer;
    try {
      closer = start_thread("closer", [&] {
        pollfd ended{signal_.descriptor(), POLLIN, 0};
        if (::poll(&ended, 1, static_cast<int>(options_.linger.count())) == 0)
          for (const SocketShutdown& connection : unsent) connection.shut_down();
      });
    } catch (const Failure&) {  // no thread can shut them down later
      for (const SocketShutdown& connection : unsent) connection.shut_down();
    }
    context_.reset();
    signal_.set();
  }

  const std::string& endpoint() const override { return endpoint_; }

  void connect(PeerId peer, const std::string& endpoint) override {
    {
      const std::lock_guard lock(mutex_);
      if (const auto at = peers_.find(peer); at != peers_.end()) {
        if (at->second->endpoint == endpoint) return;
        leave(at);
      }
      try {
        peers_.emplace(peer, open(peer, endpoint));
      } catch (const std::exception& error) {
        unreachable_.push_back({.what = Arrival::What::lost, .peer = peer, .reason = error.what()});
      }
      changed_ = true;
    }
    signal_.set();
  }

  void send(PeerId peer, Packet message) override {
    std::vector<Blob> frames = encode(std::move(message), options_.limits);
    const std::lock_guard lock(mutex_);
    const auto at = peers_.find(peer);
    if (at == peers_.end()) return;
    send_frames(at->second->push, std::move(frames));
  }

  void disconnect(PeerId peer) override {
    {
      const std::lock_guard lock(mutex_);
      const auto at = peers_.find(peer);
      if (at == peers_.end()) return;
      leave(at);
    }
    signal_.set();
  }

  void wake() override {
    woken_ = true;
    signal_.set();
  }

  Arrival wait(Clock::time_point deadline) override {
    for (;;) {
      const bool streak = streak_ == kStreak;
      if (!streak) {
        if (std::optional<Arrival> arrival = receive()) {
          ++streak_;
          return std::move(*arrival);
        }
      }
      streak_ = 0;
      if (std::optional<Arrival> arrival = poll(deadline, /*more=*/streak)) return std::move(*arrival);
    }
  }

 private:
  using Peers = std::map<PeerId, std::shared_ptr<ZmqConnection>>;

  std::shared_ptr<ZmqConnection> open(PeerId peer, const std::string& endpoint);
  // Requires mutex_.
  void leave(Peers::iterator at) {
    ZmqConnection& connection = *at->second;
    connection.leaving = true;
    if (connection.monitor) leaving_.push_back(std::move(at->second));
    else connection.push.close();
    peers_.erase(at);
    changed_ = true;
  }
  std::optional<Arrival> receive();
  std::optional<Arrival> poll(Clock::time_point deadline, bool more);
  std::optional<Arrival> take_changes();
  std::optional<Arrival> tend(ZmqConnection& connection, bool news);
  std::optional<Arrival> lose(ZmqConnection& connection, std::string reason);

  ZmqOptions options_;
  bool local_;  // inproc
  std::shared_ptr<zmq::context_t> context_;
  std::optional<ZapAuthenticator> authenticator_;
  std::string endpoint_;
  EventSignal signal_;  // set with woken_ or changed_
  std::atomic<bool> woken_{false};

  std::mutex mutex_;
  Peers peers_;
  std::vector<std::shared_ptr<ZmqConnection>> leaving_;
  std::deque<Arrival> unreachable_;
  bool changed_ = false;  // whether any of the three above changed

  // Used by the thread that waits.
  zmq::socket_t inbox_, inbox_events_;
  int inbox_descriptor_ = -1, inbox_news_ = -1;
  bool inbox_looked_ = local_;  // whether the events were found empty: Note [Waiting]
  std::vector<std::shared_ptr<ZmqConnection>> watched_;
  std::deque<Arrival> refused_;  // refused connections that wait() has not returned yet
  int streak_ = 0;               // messages since the last poll()
};

std::shared_ptr<ZmqConnection> ZmqTransport::open(PeerId peer, const std::string& endpoint) {
  const Endpoint to = parse_endpoint(endpoint);
  check(!has_name(to), "expected an address, got the name '{}'", to.place);
  check(to.scheme != "inproc" || local_, "expected an endpoint beyond this process, got '{}'", endpoint);
  return std::make_shared<ZmqConnection>(*context_, options_, peer, endpoint);
}

std::optional<Arrival> ZmqTransport::receive() {
  // One frame more than allowed, so that decode() notices if there are too many.
  std::vector<Blob> frames = receive_frames(inbox_, options_.limits.blobs + 3);
  if (frames.empty()) return std::nullopt;
  Decoded decoded = decode(std::move(frames), options_.limits);
  if (!decoded.packet) return refusal(std::move(decoded.error));
  return Arrival{.what = Arrival::What::message, .packet = std::move(*decoded.packet)};
}

// Note [Waiting]: poll(2) waits for the descriptors of ZeroMQ's sockets. The descriptor of a socket that was found
// empty becomes readable when ZeroMQ has something for it. zmq_poll would query every socket, with some system calls
// each, before and after it sleeps.

// Waits for something to happen, until the deadline at most; does not wait if there may be `more` in the inbox. Returns
// what happened, except messages, which receive() returns.
std::optional<Arrival> ZmqTransport::poll(Clock::time_point deadline, bool more) {
  if (std::optional<Arrival> arrival = take_changes()) return arrival;
  Clock::time_point until = deadline;
  std::vector<pollfd> items{
      {inbox_descriptor_, POLLIN, 0}, {signal_.descriptor(), POLLIN, 0}, {inbox_news_, POLLIN, 0}};
  const size_t first = items.size();
  bool at_once = more || !inbox_looked_ || !refused_.empty();
  for (const auto& connection : watched_) {
    items.push_back({connection->events, POLLIN, 0});
    at_once = at_once || !connection->looked;
    until = std::min({until, connection->ready_by, connection->leave_by});
  }
  const Clock::time_point now = Clock::now();
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(std::max(until, now) - now);
  const int timeout = at_once ? 0 : static_cast<int>(std::min<int64_t>(left.count(), 3'600'000));
  if (::poll(items.data(), items.size(), timeout) < 0) {
    invariant(errno == EINTR, "descriptors can be polled");
    return std::nullopt;
  }

  if (items[1].revents != 0) {
    signal_.clear();
    if (woken_.exchange(false)) return Arrival{.what = Arrival::What::woken};
    if (std::optional<Arrival> arrival = take_changes()) return arrival;
    return std::nullopt;
  }
  for (size_t i = 0; i < watched_.size(); ++i) {
    const bool news = items[first + i].revents != 0 || !std::exchange(watched_[i]->looked, true);
    if (std::optional<Arrival> arrival = tend(*watched_[i], news)) return arrival;
  }
  if (items[2].revents != 0 || !std::exchange(inbox_looked_, true))
    while (const std::optional<ZmqEvent> event = next_event(inbox_events_))
      if (event->what == ZmqEvent::What::failed) refused_.push_back(refusal(event->reason));
  if (!refused_.empty()) {
    Arrival arrival = std::move(refused_.front());
    refused_.pop_front();
    return arrival;
  }
  if (!at_once && items[0].revents == 0 && Clock::now() >= deadline) return Arrival{};
  return std::nullopt;
}

std::optional<Arrival> ZmqTransport::take_changes() {
  const std::lock_guard lock(mutex_);
  if (!changed_) return std::nullopt;
  if (!unreachable_.empty()) {
    Arrival arrival = std::move(unreachable_.front());
    unreachable_.pop_front();
    return arrival;
  }
  changed_ = false;
  watched_.clear();
  for (const auto& [peer, connection] : peers_)
    if (connection->monitor) watched_.push_back(connection);
  for (const auto& connection : leaving_) {
    if (connection->leave_by == Clock::time_point::max()) connection->leave_by = Clock::now() + options_.linger;
    watched_.push_back(connection);
  }
  return std::nullopt;
}

// Checks the events of a connection and its deadlines. Returns its loss, if that is to be reported.
std::optional<Arrival> ZmqTransport::tend(ZmqConnection& connection, bool news) {
  if (news)
    if (std::optional<std::string> reason = connection.follow()) return lose(connection, std::move(*reason));
  const Clock::time_point now = Clock::now();
  if (now >= connection.ready_by) return lose(connection, "no answer");
  if (now < connection.leave_by) return std::nullopt;
  if (!connection.shutdown) return lose(connection, "");
  connection.leave_by = Clock::time_point::max();
  connection.shutdown.shut_down();  // its monitor will report the end
  return std::nullopt;
}

std::optional<Arrival> ZmqTransport::lose(ZmqConnection& connection, std::string reason) {
  connection.ready_by = connection.leave_by = Clock::time_point::max();
  const std::lock_guard lock(mutex_);
  changed_ = true;
  connection.give_up();
  if (connection.leaving) {
    std::erase_if(leaving_, [&](const auto& other) { return other.get() == &connection; });
    return std::nullopt;
  }
  peers_.erase(connection.peer);
  return Arrival{.what = Arrival::What::lost,
                 .peer = connection.peer,
                 .reason = std::move(reason),
                 .accepted = connection.accepted};
}

}  // namespace

std::unique_ptr<Transport> make_zmq_transport(const ZmqOptions& options) {
  const Endpoint listen = parse_endpoint(options.listen);
  check(!leaves_host(listen) || options.key,
        "[transport] {} can be reached from other hosts: give a key (train keygen)", options.listen);
  check(!is_wildcard(listen) || !options.advertise.empty(),
        "[transport] expected an address under which peers find {}, or one to advertise", options.listen);
  try {
    return std::make_unique<ZmqTransport>(options, listen);
  } catch (const zmq::error_t& error) {
    const int number = error.num();
    check(number != EINVAL && number != ENODEV && number != EADDRNOTAVAIL && number != ENAMETOOLONG,
          "[transport] expected an address of this host or a path to listen on, got '{}': {}", options.listen,
          error.what());
    fail("cannot listen on {}: {}", options.listen, error.what());
  }
}

}  // namespace elinvar
