#pragma once
// Sessions that compute rank gradients together (tensor parallelism), for tests that play their coordinator, their
// network of messages and their training loops.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "elastic/session/session.h"
#include "tensor/reduction_tree.h"
#include "tests/elastic/tensor_parts.h"
#include "tests/support/bits.h"

namespace elinvar::test {

using namespace std::chrono_literals;

inline constexpr PeerId kPlayedCoordinator = 9;
inline constexpr int kPlayedShards = 3;

// Carries messages between peers.
struct Wires {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<PeerId, std::deque<Arrival>> arrivals;  // by receiver
  std::map<std::string, int64_t> carried;          // messages by kind

  int64_t count(const std::string& kind) {
    const std::lock_guard lock(mutex);
    return carried[kind];
  }
  void carry(PeerId to, Arrival arrival) {
    const std::lock_guard lock(mutex);
    ++carried[arrival.packet.kind];
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

// Members 1, 2, .. of a stage, of which each computes one virtual shard, and the first all that are left. If they
// have NCCL, they are to form a group of GPUs.
struct Stage {
  static inline const std::vector<int> kShardsOfTensors = {2, -1, 0, 1};

  explicit Stage(int members = 2, const std::vector<std::shared_ptr<Nccl>>& nccl = {},
                 std::chrono::duration<double> patience = 20s)
      : grouped(!nccl.empty()) {
    for (int m = 0; m < members; ++m) {
      const auto peer = static_cast<PeerId>(m + 1);
      SessionOptions options;
      options.member = {.self = peer,
                        .endpoint = "here",
                        .vranks = 2,
                        .steps = int64_t{1} << 30,
                        .parts = test::parts_of_shards(kShardsOfTensors)};
      options.run = 1;
      options.coordinator = kPlayedCoordinator;
      options.term = 1;
      options.directory = [] { return std::filesystem::path(); };
      options.warm_up = [](int64_t, int) { return whole(0); };
      if (grouped) options.nccl = nccl[static_cast<size_t>(m)];
      options.group_patience = patience;
      sessions.push_back(
          std::make_unique<Session>(options, std::make_unique<WiredTransport>(wires, peer),
                                    StateAccess{.view =
                                                    [] {
                                                      return StateDict{{"model.weight", Tensor::full({1}, 9)}};
                                                    },
                                                .restore = [](int64_t, int) { return ScalingState(); }}));
      tell(peer, {.payload = messages::Welcome{.restore = 0}});
    }
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
      heard_at = arrival.packet.step;
    }
    return true;
  }
  // Returns a generation of the first `members`, which begins with this step.
  Generation generation(int64_t number, int members, int64_t first_step) const {
    Generation g{.number = number,
                 .first_step = first_step,
                 .members = {},
                 .next_id = members + 1,
                 .reason = "",
                 .group = grouped};
    for (int m = 0; m < members; ++m) {
      const int own = kPlayedShards - members + m;  // the last members have one shard
      g.members.push_back({.id = m + 1,
                           .peer = static_cast<PeerId>(m + 1),
                           .endpoint = "here",
                           .share = {{0, 2}},
                           .first_share = {{0, 2}},
                           .place = {0, {m == 0 ? 0 : own, own + 1}}});
    }
    g.shards = kPlayedShards;
    return g;
  }
  int members() const { return static_cast<int>(sessions.size()); }
  void start() {
    EXPECT_TRUE(heard("ready", members()));
    tell_all(members(), 1, messages::Start{.record = generation(1, members(), 0)});
  }
  // Fences the first `members`, and begins a generation of them.
  void go_on_with(int members, int64_t step) {
    tell_all(members, 2, messages::Fence{});
    EXPECT_TRUE(heard("fenced", members));
    tell_all(members, 2, messages::Start{.record = generation(2, members, step)});
  }
  void tell_all(int members, int64_t generation, const Payload& payload) {
    for (int m = 0; m < members; ++m) tell(static_cast<PeerId>(m + 1), {.generation = generation, .payload = payload});
  }

  bool grouped;
  int64_t heard_at = 0;  // the step of the last message to the coordinator
  Wires wires;
  std::vector<std::unique_ptr<Session>> sessions;
};

inline Tensor value_of(int vrank, int shard, int64_t elements = 4) {
  std::vector<float> values;
  for (int64_t i = 0; i < elements; ++i) values.push_back(0.1f + vrank + 0.7f * shard + 0.013f * (i % 97));
  return Tensor::from(values, {elements});
}

// Computes a rank gradient as a network would: adds up values of all shards, joins others, and passes the tensors of
// its own shards, and of what is not cut.
inline void compute(Session::Task& task, Device device = {}, int64_t elements = 4) {
  const int vrank = task.vrank();
  ShardGroup& group = task.shards();
  const ShardRange own = group.own(kPlayedShards);
  std::vector<Tensor> values, pieces, all;
  for (int s = 0; s < kPlayedShards; ++s) all.push_back(value_of(vrank, s, elements));
  for (int s = own.begin; s < own.end; ++s) values.push_back(value_of(vrank, s, elements).to(device));
  const Tensor sum = group.sum(std::move(values), kPlayedShards);
  EXPECT_EQ(sum.device(), device);
  EXPECT_TRUE(same_bits(sum.to(Device{}), tree_sum(std::move(all))));
  // Of different shapes, and not floats.
  for (int s = own.begin; s < own.end; ++s)
    pieces.push_back(Tensor::full({1 + s}, vrank + s, DType::u8, Device{}).to(device));
  std::vector<Shape> shapes;
  for (int s = 0; s < kPlayedShards; ++s) shapes.push_back({1 + s});
  const std::vector<Tensor> joined = group.gather(std::move(pieces), shapes);
  ASSERT_EQ(joined.size(), 3u);
  for (int s = 0; s < kPlayedShards; ++s) {
    const Tensor piece = joined[static_cast<size_t>(s)].to(Device{});
    EXPECT_TRUE(same_bits(piece, Tensor::full({1 + s}, vrank + s, DType::u8, Device{})));
  }
  RankGradient whole = Stage::whole(vrank);
  for (Tensor& gradient : whole.gradients) gradient = gradient.to(device);
  const bool early = task.begin();
  if (early) task.forward(whole.facts.count, {});
  std::vector<Tensor> rest(4);
  for (size_t t = 4; t-- > 0;) {
    const int shard = Stage::kShardsOfTensors[t];
    if (shard >= 0 && (shard < own.begin || shard >= own.end)) continue;
    if (early) task.gradient(t, whole.gradients[t]);
    else rest[t] = whole.gradients[t];
  }
  task.end(early ? std::vector<Tensor>() : std::move(rest));
  task.finish(whole.facts);
}

}  // namespace elinvar::test
