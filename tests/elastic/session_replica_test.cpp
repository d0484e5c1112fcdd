// Sessions that compute rank gradients together (tensor parallelism), in threads; the test plays their coordinator and
// their network.
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>

#include "elastic/protocol/value_pieces.h"
#include "elastic/session/session.h"
#include "tensor/reduction_tree.h"
#include "tests/elastic/tensor_parts.h"

namespace elinvar {
namespace {

using namespace std::chrono_literals;

constexpr PeerId kPlayedCoordinator = 9;
constexpr int kPlayedShards = 3;

// Carries messages between peers.
struct Wires {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<PeerId, std::deque<Arrival>> arrivals;  // by receiver

  void carry(PeerId to, Arrival arrival) {
    const std::lock_guard lock(mutex);
    arrivals[to].push_back(std::move(arrival));
    changed.notify_all();
  }
  Arrival next(PeerId at, std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex);
    std::deque<Arrival>& queue = arrivals[at];
    if (!changed.wait_until(lock, deadline, [&] { return !queue.empty(); })) return {};
    Arrival arrival = std::move(queue.front());
    queue.pop_front();
    return arrival;
  }
};

class WiredTransport final : public Transport {
 public:
  WiredTransport(Wires& wires, PeerId self) : wires_(wires), self_(self) {}
  const std::string& endpoint() const override { return endpoint_; }
  void connect(PeerId, const std::string&) override {}
  void disconnect(PeerId) override {}
  void send(PeerId peer, Packet packet) override {
    packet.sender = self_;
    (void)encode(packet);  // throws if it is too large
    wires_.carry(peer, {.what = Arrival::What::message, .packet = std::move(packet)});
  }
  void wake() override { wires_.carry(self_, {.what = Arrival::What::woken}); }
  Arrival wait(Clock::time_point deadline) override { return wires_.next(self_, deadline); }

 private:
  Wires& wires_;
  PeerId self_;
  std::string endpoint_ = "here";
};

// Members 1 and 2, of which the first computes virtual shards 0 and 1, and the second shard 2.
struct Pair {
  static inline const std::vector<int> kShardsOfTensors = {2, -1, 0, 1};

  Pair() {
    for (const PeerId peer : {1, 2}) {
      SessionOptions options;
      options.member = {
          .self = peer, .endpoint = "here", .vranks = 2, .steps = 10, .parts = test::parts_of_shards(kShardsOfTensors)};
      options.member.audit = {.every = audits};
      options.run = 1;
      options.coordinator = kPlayedCoordinator;
      options.term = 1;
      options.directory = [] { return std::filesystem::path(); };
      options.warm_up = [](int64_t, int) { return whole(0); };
      sessions.push_back(
          std::make_unique<Session>(options, std::make_unique<WiredTransport>(wires, peer),
                                    StateAccess{.view =
                                                    [] {
                                                      return StateDict{{"model.weight", Tensor::full({1}, 9)}};
                                                    },
                                                .restore = [](int64_t, int) { return ScalingState(); }}));
    }
    for (const PeerId peer : {1, 2}) tell(peer, {.payload = messages::Welcome{.restore = 0}});
  }
  static RankGradient whole(int vrank) {
    const double x = 1 + vrank;
    return {.gradients = {Tensor::full({2}, x), Tensor::full({3}, 2 * x), Tensor::full({1}, 3 * x),
                          Tensor::full({2}, 4 * x)},
            .facts = {.loss_sum = x, .count = 1, .samples = 1}};
  }
  void tell(PeerId peer, Message message) {
    message.sender = kPlayedCoordinator;
    wires.carry(peer, {.what = Arrival::What::message, .packet = packet_of(std::move(message), /*run=*/1)});
  }
  // Waits until so many workers have sent the coordinator a message of this kind.
  bool heard(const std::string& kind, int times) {
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (times > 0) {
      const Arrival arrival = wires.next(kPlayedCoordinator, deadline);
      if (arrival.what != Arrival::What::message) return false;
      times -= arrival.packet.kind == kind;
    }
    return true;
  }
  static Generation generation() {
    Generation g{.number = 1, .first_step = 0, .members = {}, .next_id = 3, .reason = ""};
    for (int m = 0; m < 2; ++m)
      g.members.push_back({.id = m + 1,
                           .peer = static_cast<PeerId>(m + 1),
                           .endpoint = "here",
                           .share = {{0, 2}},
                           .first_share = {{0, 2}},
                           .place = {0, m == 0 ? Interval{0, 2} : Interval{2, 3}}});
    g.shards = kPlayedShards;
    return g;
  }
  void start() {
    EXPECT_TRUE(heard("ready", 2));
    for (const PeerId peer : {1, 2}) tell(peer, {.generation = 1, .payload = messages::Start{.record = generation()}});
  }
  // Fences, and then begins a generation of the first member alone.
  void go_on_alone() {
    tell(1, {.generation = 2, .payload = messages::Fence{}});
    EXPECT_TRUE(heard("fenced", 1));
    Generation g{.number = 2, .first_step = 0, .members = {}, .next_id = 3, .reason = ""};
    g.members = {{.id = 1,
                  .peer = 1,
                  .endpoint = "here",
                  .share = {{0, 2}},
                  .first_share = {{0, 2}},
                  .place = {0, {0, kPlayedShards}}}};
    g.shards = kPlayedShards;
    tell(1, {.generation = 2, .payload = messages::Start{.record = g}});
  }

  int64_t audits = 0;
  Wires wires;
  std::vector<std::unique_ptr<Session>> sessions;
};

Tensor value_of(int vrank, int shard) { return Tensor::full({4}, 0.1 + vrank + 0.7 * shard); }

// Computes a rank gradient as a network would: adds up values of all shards, joins others, and passes the tensors of
// its own shards, and of what is not cut.
void compute(Session::Task& task) {
  const int vrank = task.vrank();
  ShardGroup& group = task.shards();
  const ShardRange own = group.own(kPlayedShards);
  std::vector<Tensor> values, pieces, all;
  for (int s = 0; s < kPlayedShards; ++s) all.push_back(value_of(vrank, s));
  for (int s = own.begin; s < own.end; ++s) values.push_back(value_of(vrank, s));
  const Tensor sum = group.sum(std::move(values), kPlayedShards);
  EXPECT_EQ(sum.span<float>()[3], tree_sum(std::move(all)).span<float>()[3]);
  for (int s = own.begin; s < own.end; ++s) pieces.push_back(Tensor::full({1 + s}, vrank + s));  // of different shapes
  std::vector<Shape> shapes;
  for (int s = 0; s < kPlayedShards; ++s) shapes.push_back({1 + s});
  const std::vector<Tensor> joined = group.gather(std::move(pieces), shapes);
  ASSERT_EQ(joined.size(), 3u);
  for (int s = 0; s < kPlayedShards; ++s) {
    EXPECT_EQ(joined[static_cast<size_t>(s)].numel(), 1 + s);
    EXPECT_EQ(joined[static_cast<size_t>(s)].span<float>()[0], static_cast<float>(vrank + s));
  }
  const RankGradient whole = Pair::whole(vrank);
  const bool early = task.begin();
  if (early) task.forward(whole.facts.count, {});
  std::vector<Tensor> rest(4);
  for (size_t t = 4; t-- > 0;) {
    const int shard = Pair::kShardsOfTensors[t];
    if (shard >= 0 && (shard < own.begin || shard >= own.end)) continue;
    if (early) task.gradient(t, whole.gradients[t]);
    else rest[t] = whole.gradients[t];
  }
  task.end(early ? std::vector<Tensor>() : std::move(rest));
  task.finish(whole.facts);
}

TEST(SessionReplica, TwoSessionsComputeTogether) {
  Pair pair;
  const std::jthread coordinator([&] { pair.start(); });
  const auto train = [&](size_t which) {
    Session& session = *pair.sessions[which];
    for (int64_t step = 0; step < 3; ++step) {
      ASSERT_TRUE(session.begin());
      EXPECT_EQ(session.step().number, step);
      std::vector<int> vranks;
      while (Session::Task* const task = session.next()) {
        vranks.push_back(task->vrank());
        EXPECT_TRUE(task->counts());
        compute(*task);
      }
      EXPECT_EQ(vranks, (std::vector<int>{0, 1}));
      const Reduced* const reduced = session.reduce();
      ASSERT_TRUE(reduced);
      EXPECT_EQ(reduced->count, 2);
      ASSERT_EQ(reduced->gradients.size(), 4u);
      for (size_t t = 0; t < 4; ++t) {
        const float each = std::vector<float>{1, 2, 3, 4}[t];
        EXPECT_EQ(reduced->gradients[t].span<float>()[0], (each + 2 * each) / 2) << "tensor " << t;
      }
      session.advance({});
    }
  };
  const std::jthread other([&] { train(1); });
  train(0);
}

// A value is longer than a message's blobs may be.
TEST(SessionReplica, LongValuesAreAddedUp) {
  constexpr auto kElements = static_cast<int64_t>(kValuePiece / sizeof(float)) + 3;
  Pair pair;
  const std::jthread coordinator([&] { pair.start(); });
  const auto add_up = [&](size_t which) {
    Session& session = *pair.sessions[which];
    ASSERT_TRUE(session.begin());
    Session::Task* const task = session.next();
    ASSERT_TRUE(task);
    const ShardRange own = task->shards().own(kPlayedShards);
    std::vector<Tensor> values;
    for (int s = own.begin; s < own.end; ++s) {
      values.push_back(Tensor::full({kElements}, s));
      values.back().data<float>()[kElements - 2] = static_cast<float>(10 * s);
    }
    const Tensor sum = task->shards().sum(std::move(values), kPlayedShards);
    EXPECT_EQ(sum.numel(), kElements);
    EXPECT_EQ(sum.span<float>().front(), 3);
    EXPECT_EQ(sum.span<float>()[kElements - 2], 30);
    EXPECT_EQ(sum.span<float>().back(), 3);
  };
  const std::jthread other([&] { add_up(1); });
  add_up(0);
}

// They must not be combined: the members do not compute the same network.
TEST(SessionReplica, ValuesOfAnotherShapeAreReported) {
  Pair pair;
  const std::jthread coordinator([&] {
    pair.start();
    EXPECT_TRUE(pair.heard("suspect", 2));
    for (const PeerId peer : {1, 2}) pair.tell(peer, {.generation = 2, .payload = messages::Fence{}});
  });
  const auto add_up = [&](size_t which) {
    Session& session = *pair.sessions[which];
    ASSERT_TRUE(session.begin());
    Session::Task* const task = session.next();
    ASSERT_TRUE(task);
    std::vector<Tensor> values;
    for (int s = 0; s < task->shards().own(kPlayedShards).size(); ++s)
      values.push_back(Tensor::full({which == 0 ? 4 : 5}, 1));
    EXPECT_THROW((void)task->shards().sum(std::move(values), kPlayedShards), Session::StepOver);
  };
  const std::jthread other([&] { add_up(1); });
  add_up(0);
}

TEST(SessionReplica, AMemberThatIsGoneEndsTheRankGradientOfTheOther) {
  Pair pair;
  std::promise<void> gone;
  const std::jthread coordinator([&] {
    pair.start();
    gone.get_future().wait();
    pair.go_on_alone();
  });
  const std::jthread other([&] {
    Session& session = *pair.sessions[1];
    ASSERT_TRUE(session.begin());
    Session::Task* const task = session.next();
    ASSERT_TRUE(task);
    std::vector<Tensor> value;
    value.push_back(value_of(0, 2));
    EXPECT_NO_THROW(task->shards().sum(std::move(value), kPlayedShards));
    gone.set_value();  // it sends nothing any more
  });
  Session& session = *pair.sessions[0];
  ASSERT_TRUE(session.begin());
  Session::Task* task = session.next();
  ASSERT_TRUE(task);
  EXPECT_EQ(&task->shards() == &local_shards(), false);
  EXPECT_THROW(compute(*task), Session::StepOver);
  session.give_up();
  EXPECT_FALSE(session.reduce());
  ASSERT_TRUE(session.begin());
  EXPECT_EQ(session.step().number, 0) << "the step begins anew";
  int computed = 0;
  for (; (task = session.next()); ++computed) {
    EXPECT_EQ(&task->shards(), &local_shards()) << "it is alone";
    EXPECT_FALSE(task->begin());
    task->end(Pair::whole(task->vrank()).gradients);
    task->finish(Pair::whole(task->vrank()).facts);
  }
  EXPECT_EQ(computed, 2);
  const Reduced* const reduced = session.reduce();
  ASSERT_TRUE(reduced);
  EXPECT_EQ(reduced->gradients[3].span<float>()[1], 6.0f);
}

// A member may not notice that its generation ended before it computes the next rank gradient. The others of the next
// generation need its digests of all of them.
TEST(SessionReplica, RankGradientsBeginAnewInAnotherGeneration) {
  Pair pair;
  const std::jthread other([&] { EXPECT_TRUE(pair.sessions[1]->begin()); });
  std::jthread coordinator([&] {
    pair.start();
    EXPECT_TRUE(pair.heard("entered", 2));
  });
  Session& session = *pair.sessions[0];
  ASSERT_TRUE(session.begin());
  coordinator.join();
  Session::Task* const task = session.next();
  ASSERT_TRUE(task);
  EXPECT_TRUE(task->begin());
  const RankGradient gradient = Pair::whole(0);
  task->forward(gradient.facts.count, {});
  for (const size_t t : {3, 2, 1}) task->gradient(t, gradient.gradients[t]);
  pair.tell(1, {.generation = 2, .payload = messages::Fence{}});
  EXPECT_TRUE(pair.heard("fenced", 1));
  Generation g = Pair::generation();
  g.number = 2;
  pair.tell(1, {.generation = 2, .payload = messages::Start{.record = g}});
  EXPECT_TRUE(pair.heard("entered", 1));
  task->end({});
  task->finish(gradient.facts);
  EXPECT_THROW(session.next(), Session::StepOver);
  session.give_up();
  EXPECT_FALSE(session.reduce());
  ASSERT_TRUE(session.begin());
  Session::Task* const again = session.next();
  ASSERT_TRUE(again);
  EXPECT_EQ(again->vrank(), 0);
}

}  // namespace
}  // namespace elinvar
