// A worker's session; the test plays its coordinator and its network.
#include "elastic/session/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "tensor/base/activity.h"
#include "tensor/base/check.h"

namespace elinvar {
namespace {

using namespace std::chrono_literals;

constexpr PeerId kCoordinator = 2, kSelf = 4;

// Shared by the test and the session's transport.
struct Network {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Arrival> arrivals;
  std::vector<Packet> sent;  // over connections that exist
  std::map<PeerId, std::string> connections;

  void arrive(Arrival arrival) {
    const std::lock_guard lock(mutex);
    if (arrival.what == Arrival::What::lost) connections.erase(arrival.peer);
    arrivals.push_back(std::move(arrival));
    changed.notify_all();
  }
  // Returns the next message of this kind within 10 s; else a message without a kind.
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

RankGradient leaf() { return {.gradients = {Tensor::full({1}, 2)}, .facts = {.count = 1, .samples = 1}}; }

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
  options.warm_up = [](int64_t, int) { return leaf(); };
  return options;
}

// Reduces the gradients of the current step.
const Reduced* reduce_step(Session& session) {
  while (Session::Task* const task = session.next()) {
    RankGradient gradient = leaf();
    EXPECT_TRUE(task->counts());
    EXPECT_FALSE(task->begin()) << "of a worker alone, gradients stay where they are";
    task->end(std::move(gradient.gradients));
    task->finish(std::move(gradient.facts));
  }
  return session.reduce();
}

// The worker does not see the run directory, so only the coordinator itself can show that it lives.
TEST(Session, ALostConnectionToTheCoordinatorIsMadeAnew) {
  Network network;
  network.connections[kCoordinator] = "tcp://127.0.0.1:2";
  Session session(options_of_a_worker(), std::make_unique<PlayedTransport>(network),
                  {.view = [] { return StateDict(); }, .restore = [](int64_t, int) { return ScalingState(); }});
  EXPECT_EQ(network.next("hello").kind, "hello");
  for (int i = 0; i < 2; ++i) {
    network.arrive({.what = Arrival::What::lost, .peer = kCoordinator, .reason = "cut"});
    EXPECT_EQ(network.next("hello").kind, "hello");
    EXPECT_EQ(network.connections[kCoordinator], "tcp://127.0.0.1:2");
  }
  network.arrive({.what = Arrival::What::message,
                  .packet = packet_of({.sender = kCoordinator, .payload = messages::Heard{}}, /*run=*/1)});
  // Once answered, it does not introduce itself again.
  for (int i = 0; i < 3; ++i) EXPECT_EQ(network.next("alive").kind, "alive");
  {
    const std::lock_guard lock(network.mutex);
    network.sent.clear();
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(network.next("alive").kind, "alive");
  const std::lock_guard lock(network.mutex);
  for (const Packet& m : network.sent) EXPECT_NE(m.kind, "hello");
}

// With ZeRO-3 a rank gradient that is under way when another generation begins would lack parameters in the middle of
// its backward pass, after it has contributed some buckets. So it is void, and no other one begins before the step
// does.
TEST(Session, ARankGradientThatLacksParametersEndsWithItsGeneration) {
  Network network;
  network.connections[kCoordinator] = "tcp://127.0.0.1:2";
  SessionOptions options = options_of_a_worker();
  options.member.vranks = 4;
  options.member.sharding = ShardOptions{.parameters = {{1}}, .zero = 3};
  Session session(options, std::make_unique<PlayedTransport>(network),
                  {.view = [] { return StateDict(); },
                   .restore = [](int64_t, int) { return ScalingState(); },
                   .shards = ShardAccess{.keep = [](int, const auto&) {},
                                         .learns = [](int) {},
                                         .ranges = [](const Slice&, int) { return std::vector<SliceRange>(); },
                                         .state = [](const Slice&, int) { return std::vector<StateSlice>(); },
                                         .parameter = [](const Slice&) { return Tensor::full({1}, 9); },
                                         .updated = [](const Slice&) { return Tensor::full({1}, 9); },
                                         .layout = [](int) { return std::vector<TensorLayout>(); },
                                         .fetches = [] { return true; }}});
  const auto tell = [&](Message message) {
    message.sender = kCoordinator;
    network.arrive({.what = Arrival::What::message, .packet = packet_of(std::move(message), /*run=*/1)});
  };
  const auto start = [&](int64_t number) {
    Generation g{.number = number, .first_step = 0, .members = {}, .next_id = 3, .reason = ""};
    g.members = {{.id = 1, .peer = kSelf, .endpoint = "e", .share = {{0, 2}}, .first_share = {{0, 2}}},
                 {.id = 2, .peer = 6, .endpoint = "e", .share = {{2, 4}}, .first_share = {{2, 4}}}};
    g.sharding =
        Sharding{.zero = 3, .keepers = {.ids = {2}}, .holders = {.ids = {1, 2}}, .whole = true, .zero_before = 3};
    tell({.generation = number, .payload = messages::Start{.record = g}});
    EXPECT_EQ(network.next("entered").kind, "entered");
  };
  tell({.payload = messages::Welcome{.restore = 0}});
  std::jthread coordinator([&] {
    EXPECT_EQ(network.next("ready").kind, "ready");
    start(1);
  });
  // Passes one gradient of a rank gradient on. Returns whether another member, which owns its bucket, gets it.
  const auto contributes = [&](Session::Task& task) {
    {
      const std::lock_guard lock(network.mutex);
      network.sent.clear();
    }
    RankGradient gradient = leaf();
    EXPECT_TRUE(task.begin());
    task.forward(1, {});
    task.gradient(0, gradient.gradients[0]);
    task.end({});
    task.finish(std::move(gradient.facts));
    const std::lock_guard lock(network.mutex);
    return std::ranges::any_of(network.sent, [](const Packet& m) { return m.kind == "contribution"; });
  };
  ASSERT_TRUE(session.begin());
  coordinator.join();
  Session::Task* task = session.next();
  ASSERT_TRUE(task);
  EXPECT_TRUE(contributes(*task));
  task = session.next();
  ASSERT_TRUE(task);
  tell({.generation = 2, .payload = messages::Fence{}});
  EXPECT_EQ(network.next("fenced").kind, "fenced");
  start(2);
  EXPECT_FALSE(contributes(*task));
  EXPECT_THROW(session.next(), Session::StepOver);
  session.give_up();
  ASSERT_FALSE(session.reduce());
  ASSERT_TRUE(session.begin());
  task = session.next();
  ASSERT_TRUE(task);
  EXPECT_EQ(task->vrank(), 0);
  EXPECT_TRUE(contributes(*task));
}

// The worker has been at step 1, and its replay reaches that step again from step 0 while a learner is to get the state
// after step 1: a part sent during the replay would belong to another state.
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
                       [&](int64_t step, int) {
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
  EXPECT_TRUE(session.step().replays);
  EXPECT_EQ(session.step().number, 0);
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
  while (!connected()) std::this_thread::yield();  // until it has heard of the learner
  for (const auto before = sent("alive"); sent("alive") < before + 3;) std::this_thread::yield();
  EXPECT_EQ(sent("state"), 0);
  const Reduced* const reduced = reduce_step(session);
  ASSERT_TRUE(reduced);
  EXPECT_FALSE(session.step().last);
  weight.data<float>()[0] = static_cast<float>(reduced->gradients[0].item()) + 3;
  session.advance({});
  ASSERT_TRUE(session.begin());
  EXPECT_FALSE(session.step().replays);
  EXPECT_EQ(session.step().number, 1);
  const Message message = message_of(network.next("state"));
  const auto* state = message.as<messages::StatePieces>();
  ASSERT_TRUE(state);
  ASSERT_EQ(state->pieces.size(), 2u);
  EXPECT_EQ(state->pieces[0].tensor, "model.weight");
  EXPECT_EQ(state->pieces[1].tensor, "step");
  EXPECT_EQ(*reinterpret_cast<const float*>(state->bytes[0].data), 5);
}

// A replay that cannot run shows nothing: the member continues with its state.
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
                   .restore = [&](int64_t step, int) -> std::optional<ScalingState> {
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
  EXPECT_FALSE(session.step().replays);
  EXPECT_EQ(session.step().number, 5);
  EXPECT_EQ(weight.item(), 5);
}

// A worker that is alone in a run from its start.
struct LoneWorker {
  Network network;
  Tensor weight = Tensor::full({1}, 9);
  std::unique_ptr<Session> session;

  explicit LoneWorker(const SessionOptions& options) {
    network.connections[kCoordinator] = "tcp://127.0.0.1:2";
    session = std::make_unique<Session>(options, std::make_unique<PlayedTransport>(network),
                                        StateAccess{.view =
                                                        [this] {
                                                          return StateDict{{"model.weight", weight}};
                                                        },
                                                    .restore = [](int64_t, int) { return ScalingState(); }});
    tell({.payload = messages::Welcome{.restore = 0}});
    const int vranks = options.member.vranks;
    Generation first{.number = 1, .first_step = 0, .members = {}, .reason = "start"};
    first.members = {{.id = 3, .peer = kSelf, .endpoint = "e", .share = {{0, vranks}}, .first_share = {{0, vranks}}}};
    start = [this, first] {
      EXPECT_EQ(network.next("ready").kind, "ready");
      tell({.generation = 1, .payload = messages::Start{.record = first}});
    };
  }
  void tell(Message message) {
    message.sender = kCoordinator;
    network.arrive({.what = Arrival::What::message, .packet = packet_of(std::move(message), /*run=*/1)});
  }
  // Waits for a heartbeat that reports this work.
  bool says(const std::string& what) {
    for (int i = 0; i < 100; ++i)
      if (message_of(network.next("alive")).as<messages::Alive>()->work.what == what) return true;
    return false;
  }
  std::function<void()> start;  // starts the job once the worker is ready
};

TEST(Session, WarmsUpOnceBeforeTheFirstStep) {
  SessionOptions options = options_of_a_worker();
  options.member.vranks = 2;
  std::vector<std::pair<int64_t, int>> asked;
  options.warm_up = [&](int64_t step, int vrank) {
    asked.emplace_back(step, vrank);
    return vrank == 0 ? RankGradient() : leaf();  // the first has no samples
  };
  LoneWorker worker(options);
  const std::jthread coordinator(worker.start);
  Session& session = *worker.session;
  for (int64_t step = 0; step < 3; ++step) {
    ASSERT_TRUE(session.begin());
    EXPECT_EQ(asked, (std::vector<std::pair<int64_t, int>>{{0, 0}, {0, 1}}));
    EXPECT_EQ(session.step().number, step);
    EXPECT_EQ(session.step().worker, 3);
    EXPECT_TRUE(session.step().leads);
    const Reduced* const reduced = reduce_step(session);
    ASSERT_TRUE(reduced);
    EXPECT_EQ(reduced->count, 2);
    EXPECT_EQ(reduced->gradients[0].item(), 2);
    session.advance({});
  }
}

TEST(Session, HeartbeatsTellOfTheLoopsTimedActivities) {
  LoneWorker worker(options_of_a_worker());
  const std::jthread coordinator(worker.start);
  Session& session = *worker.session;
  ASSERT_TRUE(session.begin());
  EXPECT_TRUE(worker.says("preparing"));
  Session::Task* const task = session.next();
  ASSERT_TRUE(task);
  EXPECT_TRUE(worker.says("a rank gradient"));
  {
    const TimedActivity activity("an evaluation");
    const Activity within("forward");
    EXPECT_TRUE(worker.says("an evaluation"));
  }
  EXPECT_TRUE(worker.says("a rank gradient"));
  EXPECT_FALSE(task->begin());
  task->end({Tensor::full({1}, 2)});
  task->finish({.count = 1, .samples = 1});
  EXPECT_FALSE(session.next());
  ASSERT_TRUE(session.reduce());
  EXPECT_TRUE(worker.says("the update"));
  session.advance({});
  worker.session.reset();
  EXPECT_EQ(activity::clock, nullptr);
}

}  // namespace
}  // namespace elinvar
