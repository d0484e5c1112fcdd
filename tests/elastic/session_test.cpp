// A worker's session, with a coordinator and a network that the test plays.
#include "elastic/session/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "tensor/base/check.h"

namespace elinvar {
namespace {

using namespace std::chrono_literals;

constexpr PeerId kCoordinator = 2, kSelf = 4;

// What the test and the session's transport share.
struct Network {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Arrival> arrivals;
  std::vector<Packet> sent;  // over connections that there are
  std::map<PeerId, std::string> connections;

  void arrive(Arrival arrival) {
    const std::lock_guard lock(mutex);
    if (arrival.what == Arrival::What::lost) connections.erase(arrival.peer);
    arrivals.push_back(std::move(arrival));
    changed.notify_all();
  }
  // The next message of this kind, within 10 s; else one without a kind.
  Packet next(const std::string& kind) {
    std::unique_lock lock(mutex);
    Packet found;
    changed.wait_for(lock, 10s, [&] {
      for (auto m = sent.begin(); m != sent.end(); ++m)
        if (m->kind == kind) {
          found = *m;
          sent.erase(sent.begin(), m + 1);
          return true;
        }
      return false;
    });
    return found;
  }
};

class PlayedTransport : public Transport {
 public:
  explicit PlayedTransport(Network& network) : network_(network) {}
  const std::string& endpoint() const override { return endpoint_; }
  void connect(PeerId peer, const std::string& endpoint) override {
    const std::lock_guard lock(network_.mutex);
    network_.connections[peer] = endpoint;
  }
  void send(PeerId peer, Packet packet) override {
    const std::lock_guard lock(network_.mutex);
    if (!network_.connections.contains(peer)) return;
    network_.sent.push_back(std::move(packet));
    network_.changed.notify_all();
  }
  void disconnect(PeerId peer) override {
    const std::lock_guard lock(network_.mutex);
    network_.connections.erase(peer);
  }
  void wake() override { network_.arrive({.what = Arrival::What::woken}); }
  Arrival wait(Clock::time_point deadline) override {
    std::unique_lock lock(network_.mutex);
    if (!network_.changed.wait_until(lock, deadline, [&] { return !network_.arrivals.empty(); })) return {};
    Arrival arrival = std::move(network_.arrivals.front());
    network_.arrivals.pop_front();
    return arrival;
  }

 private:
  Network& network_;
  std::string endpoint_ = "tcp://127.0.0.1:4";
};

SessionOptions options_of_a_worker() {
  SessionOptions options;
  options.member = {.self = kSelf, .endpoint = "tcp://127.0.0.1:4", .steps = 10};
  options.run = 1;
  options.coordinator = kCoordinator;
  options.coordinator_endpoint = "tcp://127.0.0.1:2";
  options.term = 1;
  options.about = {.endpoint = "tcp://127.0.0.1:4"};
  options.directory = [] { return std::filesystem::path(); };
  options.heartbeat = 20ms;
  return options;
}

// It does not see the run directory, so nothing tells whether the coordinator lives but the coordinator itself.
TEST(Session, ALostConnectionToTheCoordinatorIsMadeAnew) {
  Network network;
  network.connections[kCoordinator] = "tcp://127.0.0.1:2";
  Session session(options_of_a_worker(), std::make_unique<PlayedTransport>(network),
                  {.view = [] { return StateDict(); }, .restore = [](int64_t) { return ScalingState(); }});
  EXPECT_EQ(network.next("hello").kind, "hello");
  for (int i = 0; i < 2; ++i) {
    network.arrive({.what = Arrival::What::lost, .peer = kCoordinator, .reason = "cut"});
    EXPECT_EQ(network.next("hello").kind, "hello");
    EXPECT_EQ(network.connections[kCoordinator], "tcp://127.0.0.1:2");
  }
  network.arrive({.what = Arrival::What::message,
                  .packet = packet_of({.sender = kCoordinator, .payload = messages::Heard{}}, /*run=*/1)});
  // Once it is answered it has nothing more to introduce.
  for (int i = 0; i < 3; ++i) EXPECT_EQ(network.next("alive").kind, "alive");
  {
    const std::lock_guard lock(network.mutex);
    network.sent.clear();
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(network.next("alive").kind, "alive");
  const std::lock_guard lock(network.mutex);
  for (const Packet& m : network.sent) EXPECT_NE(m.kind, "hello");
}

// It has been to step 1, and comes there from step 0 again when a learner is to be given the state after step 1: a part
// that left earlier would be of another state.
TEST(Session, AReplayIsOverBeforeALearnerGetsTheState) {
  Network network;
  network.connections[kCoordinator] = "tcp://127.0.0.1:2";
  Tensor weight = Tensor::full({1}, 9);
  SessionOptions options = options_of_a_worker();
  Session session(options, std::make_unique<PlayedTransport>(network),
                  {.view =
                       [&] {
                         return StateDict{{"model.weight", weight}};
                       },
                   .restore =
                       [&](int64_t step) {
                         weight.data<float>()[0] = static_cast<float>(step);
                         return ScalingState();
                       }});
  const auto tell = [&](Message message) {
    message.sender = kCoordinator;
    network.arrive({.what = Arrival::What::message, .packet = packet_of(std::move(message), /*run=*/1)});
  };
  const std::jthread coordinator([&] {
    tell({.payload = messages::Welcome{.restore = 1}});
    EXPECT_EQ(network.next("ready").kind, "ready");
    Generation trial{.number = 1, .first_step = 1, .members = {}, .reason = "a trial", .trial = Trial{.replay = 0}};
    trial.members = {{.id = 1, .peer = kSelf, .endpoint = "e", .share = {{0, 1}}, .first_share = {{0, 1}}},
                     {.id = 2, .peer = 6, .endpoint = "e", .share = {}, .first_share = {}}};
    tell({.generation = 1, .payload = messages::Start{.record = trial}});
  });
  ASSERT_TRUE(session.begin());
  EXPECT_TRUE(session.replays());
  EXPECT_EQ(session.step(), 0);
  EXPECT_EQ(weight.item(), 0);
  tell({.generation = 1,
        .step = 1,
        .payload = messages::SendState{.peer = 7, .endpoint = "e", .attempt = 1, .copies = true}});
  const auto sent = [&](const char* kind) {
    const std::lock_guard lock(network.mutex);
    return std::count_if(network.sent.begin(), network.sent.end(), [&](const Packet& m) { return m.kind == kind; });
  };
  const auto connected = [&] {
    const std::lock_guard lock(network.mutex);
    return network.connections.contains(7);
  };
  while (!connected()) std::this_thread::yield();  // it has heard of the learner
  for (const auto before = sent("alive"); sent("alive") < before + 3;) std::this_thread::yield();
  EXPECT_EQ(sent("state"), 0);
  const auto leaf = [] {
    return RankGradient{.gradients = {Tensor::full({1}, 2)}, .facts = {.count = 1, .samples = 1}};
  };
  session.learn_layout(leaf());
  while (const auto vrank = session.next()) session.add(*vrank, leaf());
  ASSERT_TRUE(session.reduce());
  EXPECT_FALSE(session.last());
  weight.data<float>()[0] = static_cast<float>(session.reduced().gradients[0].item()) + 3;
  session.advance({});
  ASSERT_TRUE(session.begin());
  EXPECT_FALSE(session.replays());
  EXPECT_EQ(session.step(), 1);
  const Message message = message_of(network.next("state"));
  const auto* state = message.as<messages::StatePieces>();
  ASSERT_TRUE(state);
  ASSERT_EQ(state->pieces.size(), 2u);
  EXPECT_EQ(state->pieces[0].tensor, "model.weight");
  EXPECT_EQ(state->pieces[1].tensor, "step");
  EXPECT_EQ(*reinterpret_cast<const float*>(state->bytes[0].data), 5);
}

// A replay that cannot be has shown nothing: the member goes on with the state that it has.
TEST(Session, AReplayWithoutItsCheckpointLeavesTheState) {
  Network network;
  network.connections[kCoordinator] = "tcp://127.0.0.1:2";
  Tensor weight = Tensor::full({1}, 9);
  bool damaged = false;
  Session session(options_of_a_worker(), std::make_unique<PlayedTransport>(network),
                  {.view =
                       [&] {
                         return StateDict{{"model.weight", weight}};
                       },
                   .restore = [&](int64_t step) -> std::optional<ScalingState> {
                     if (damaged) fail("checkpoint {} cannot be used", step);
                     weight.data<float>()[0] = static_cast<float>(step);
                     return ScalingState();
                   }});
  const auto tell = [&](Message message) {
    message.sender = kCoordinator;
    network.arrive({.what = Arrival::What::message, .packet = packet_of(std::move(message), /*run=*/1)});
  };
  const std::jthread coordinator([&] {
    tell({.payload = messages::Welcome{.restore = 5}});
    EXPECT_EQ(network.next("ready").kind, "ready");
    damaged = true;
    Generation trial{.number = 1, .first_step = 5, .members = {}, .reason = "a trial", .trial = Trial{.replay = 3}};
    trial.members = {{.id = 1, .peer = kSelf, .endpoint = "e", .share = {{0, 1}}, .first_share = {{0, 1}}},
                     {.id = 2, .peer = 6, .endpoint = "e", .share = {}, .first_share = {}}};
    tell({.generation = 1, .payload = messages::Start{.record = trial}});
  });
  ASSERT_TRUE(session.begin());
  EXPECT_FALSE(session.replays());
  EXPECT_EQ(session.step(), 5);
  EXPECT_EQ(weight.item(), 5);
}

}  // namespace
}  // namespace elinvar
