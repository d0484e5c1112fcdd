// Messages over ZeroMQ: they arrive whole and in order, waiting costs nothing, and losses are reported.
#include "comm/transport.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>

#include "comm/zmq_transport.h"
#include "tests/comm/wire.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

using namespace std::chrono_literals;
using test::bytes_of;
using test::equal;
using test::loopback;
using test::next;
using test::seconds_since;
using test::TemporaryFolder;
using What = Arrival::What;
using Clock = Transport::Clock;

// One endpoint a scheme; ipc's path lies in a folder of its own.
class Schemes : public testing::TestWithParam<const char*> {
 protected:
  std::string listen(const std::string& name) const {
    const std::string scheme = GetParam();
    if (scheme == "tcp") return "tcp://127.0.0.1:0";
    if (scheme == "ipc") return "ipc://" + (folder_ / name).string();
    return "inproc://" + folder_.path() + "-" + name;
  }
  TemporaryFolder folder_;
};
INSTANTIATE_TEST_SUITE_P(Transport, Schemes, testing::Values("tcp", "ipc", "inproc"));

TEST_P(Schemes, MessagesArriveWholeAndInOrder) {
  const auto a = make_zmq_transport({.listen = listen("a")}), b = make_zmq_transport({.listen = listen("b")});
  a->connect(2, b->endpoint());
  for (int i = 0; i < 1000; ++i) {
    Packet message{.kind = "count", .run = 5, .sender = 1, .generation = 3, .step = i};
    message.body["i"] = i;
    // Small ones are copied on their way, large ones are not.
    for (int k = 0; k < i % 4; ++k) message.blobs.push_back(bytes_of(static_cast<size_t>(i * 37 % 20000), 7u));
    a->send(2, std::move(message));
  }
  for (int i = 0; i < 1000; ++i) {
    const Arrival arrival = next(*b);
    ASSERT_EQ(arrival.what, What::message) << arrival.reason;
    const Packet& message = arrival.packet;
    EXPECT_EQ(message.kind, "count");
    EXPECT_EQ(message.run, 5u);
    EXPECT_EQ(message.sender, 1u);
    EXPECT_EQ(message.generation, 3);
    ASSERT_EQ(message.step, i);
    EXPECT_EQ(message.body, (nlohmann::json{{"i", i}}));
    ASSERT_EQ(message.blobs.size(), static_cast<size_t>(i % 4));
    for (const Blob& blob : message.blobs) {
      EXPECT_TRUE(equal(blob, bytes_of(static_cast<size_t>(i * 37 % 20000), 7u)));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(blob.data) % 8, 0u);
    }
  }
  EXPECT_EQ(next(*b, 0ms).what, What::timeout);
}

TEST_P(Schemes, ManyPeersTalkToAll) {
  constexpr size_t kPeers = 12, kMessages = 20;
  std::vector<std::unique_ptr<Transport>> peers;
  for (size_t i = 0; i < kPeers; ++i) peers.push_back(make_zmq_transport({.listen = listen(std::to_string(i))}));
  for (const auto& from : peers)
    for (size_t to = 0; to < kPeers; ++to) from->connect(to, peers[to]->endpoint());
  for (size_t from = 0; from < kPeers; ++from)
    for (size_t n = 0; n < kMessages; ++n)
      for (size_t to = 0; to < kPeers; ++to)
        peers[from]->send(to, {.kind = "hello", .sender = from, .step = static_cast<int64_t>(n)});
  for (const auto& to : peers) {
    std::vector<int64_t> expected(kPeers, 0);
    for (size_t n = 0; n < kPeers * kMessages; ++n) {
      const Arrival arrival = next(*to);
      ASSERT_EQ(arrival.what, What::message) << arrival.reason;
      EXPECT_EQ(arrival.packet.step, expected[arrival.packet.sender]++);
    }
  }
}

TEST_P(Schemes, LargeMessagesShareTheirBytes) {
  const auto a = make_zmq_transport({.listen = listen("a")}), b = make_zmq_transport({.listen = listen("b")});
  a->connect(2, b->endpoint());
  const Blob blob = bytes_of(4 << 20, 1);
  std::weak_ptr<const void> owner = blob.owner;
  for (int i = 0; i < 25; ++i) a->send(2, {.kind = "part", .step = i, .blobs = {blob}});
  for (int i = 0; i < 25; ++i) {
    const Arrival arrival = next(*b);
    ASSERT_EQ(arrival.what, What::message) << arrival.reason;
    EXPECT_EQ(arrival.packet.step, i);
    ASSERT_EQ(arrival.packet.blobs.size(), 1u);
    EXPECT_TRUE(equal(arrival.packet.blobs[0], blob));
  }
  // ZeroMQ lets go of the last one when it has looked at the socket again.
  for (int i = 0; i < 1000 && owner.use_count() > 1; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(owner.use_count(), 1);
}

TEST_P(Schemes, WhatIsQueuedIsSentBeforeTheEnd) {
  const auto b = make_zmq_transport({.listen = listen("b")});
  {
    const auto a = make_zmq_transport({.listen = listen("a"), .linger = 10s});
    a->connect(2, b->endpoint());
    a->send(2, {.kind = "first", .blobs = {bytes_of(30 << 20, 1)}});
    a->disconnect(2);
    a->send(2, {.kind = "dropped"});
    a->connect(2, b->endpoint());
    a->send(2, {.kind = "second", .blobs = {bytes_of(1000, 2)}});
  }
  std::vector<std::string> kinds{next(*b).packet.kind, next(*b).packet.kind};
  std::sort(kinds.begin(), kinds.end());
  EXPECT_EQ(kinds, (std::vector<std::string>{"first", "second"}));
  EXPECT_EQ(next(*b, 20ms).what, What::timeout);
}

TEST_P(Schemes, AnotherThreadWakesTheOneThatWaits) {
  const auto a = make_zmq_transport({.listen = listen("a")});
  const auto start = Clock::now();
  const std::jthread thread([&] {
    std::this_thread::sleep_for(50ms);
    a->wake();
  });
  EXPECT_EQ(next(*a).what, What::woken);
  EXPECT_LT(seconds_since(start), 5);
  EXPECT_EQ(next(*a, 0ms).what, What::timeout);
  a->wake();
  a->wake();
  EXPECT_EQ(next(*a).what, What::woken);
  EXPECT_EQ(next(*a, 0ms).what, What::timeout);
}

TEST_P(Schemes, AnyThreadSends) {
  const auto a = make_zmq_transport({.listen = listen("a")}), b = make_zmq_transport({.listen = listen("b")});
  constexpr int kThreads = 4, kMessages = 500;
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      a->connect(2, b->endpoint());
      for (int i = 0; i < kMessages; ++i)
        a->send(2, {.kind = "n", .sender = static_cast<PeerId>(t), .step = i, .blobs = {bytes_of(9000, 3)}});
    });
  std::vector<int64_t> expected(kThreads, 0);
  for (int i = 0; i < kThreads * kMessages; ++i) {
    const Arrival arrival = next(*b);
    ASSERT_EQ(arrival.what, What::message) << arrival.reason;
    EXPECT_EQ(arrival.packet.step, expected[arrival.packet.sender]++);
    ASSERT_EQ(arrival.packet.blobs.size(), 1u) << "frames of two senders must not mix";
  }
}

TEST(Transport, SignalsAreHeardInAFloodOfMessages) {
  const auto a = make_zmq_transport(), b = make_zmq_transport();
  a->connect(2, b->endpoint());
  for (int i = 0; i < 1000; ++i) a->send(2, {.kind = "flood"});
  EXPECT_EQ(next(*b).what, What::message);
  b->wake();
  int before = 0;
  while (before < 100 && next(*b).what == What::message) ++before;
  EXPECT_LT(before, 20);
}

// Neither ZeroMQ's threads nor ours wake up while nothing arrives.
// ZeroMQ would abort the process.
TEST(Transport, WithoutRoomForItsFilesThereIsNone) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next_file = ::dup(STDERR_FILENO);
  ::close(next_file);
  for (const int more : {0, 1, 3, 5}) {
    const rlimit few{static_cast<rlim_t>(next_file + more), before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    const std::string message =
        test::message_of<Failure>([] { (void)make_zmq_transport({.listen = "tcp://127.0.0.1:0"}); });
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_NE(message.find("Too many open files"), std::string::npos) << more << ": " << message;
  }
}

TEST(Transport, WaitingCostsNothing) {
  const JobKey key = JobKey::make();
  std::vector<std::unique_ptr<Transport>> peers;
  for (int i = 0; i < 5; ++i) peers.push_back(make_zmq_transport({.key = key}));
  for (size_t i = 1; i < peers.size(); ++i) {
    peers[0]->connect(i, peers[i]->endpoint());
    peers[0]->send(i, {.kind = "hello"});
    ASSERT_EQ(next(*peers[i]).what, What::message);
  }
  EXPECT_EQ(next(*peers[0], 100ms).what, What::timeout);
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  EXPECT_EQ(next(*peers[0], 500ms).what, What::timeout);
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_nvcsw - before.ru_nvcsw, 25) << "a sanitizer's own thread wakes up ten times a second";
}

TEST(Transport, WaitingEndsAtTheDeadline) {
  const auto a = make_zmq_transport();
  const auto start = Clock::now();
  EXPECT_EQ(next(*a, 100ms).what, What::timeout);
  EXPECT_GE(seconds_since(start), 0.1);
  EXPECT_LT(seconds_since(start), 5);
  EXPECT_EQ(a->wait(Clock::time_point::min()).what, What::timeout);
}

TEST(Transport, ALostConnectionIsToldOnce) {
  const auto a = make_zmq_transport();
  for (const char* listen : {"tcp://127.0.0.1:0", "ipc"}) {
    const TemporaryFolder folder;
    const std::string inbox = listen == std::string("ipc") ? "ipc://" + (folder / "b").string() : listen;
    auto b = make_zmq_transport({.listen = inbox});
    a->connect(2, b->endpoint());
    a->send(2, {.kind = "hello"});
    ASSERT_EQ(next(*b).what, What::message);
    b.reset();
    const auto start = Clock::now();
    const Arrival arrival = next(*a);
    EXPECT_EQ(arrival.what, What::lost);
    EXPECT_EQ(arrival.peer, 2u);
    EXPECT_EQ(arrival.reason, "the connection was closed");
    EXPECT_LT(seconds_since(start), 4);
    a->send(2, {.kind = "dropped"});
    EXPECT_EQ(next(*a, 50ms).what, What::timeout);
  }
}

TEST(Transport, WhereNobodyListensIsLost) {
  const auto a = make_zmq_transport({.connect_timeout = 1s});
  const auto lost = [&](const std::string& endpoint) {
    a->connect(9, endpoint);
    a->send(9, {.kind = "into the void", .blobs = {bytes_of(100000, 1)}});
    const auto start = Clock::now();
    const Arrival arrival = next(*a);
    EXPECT_EQ(arrival.what, What::lost) << endpoint;
    EXPECT_EQ(arrival.peer, 9u);
    EXPECT_LT(seconds_since(start), 4) << endpoint;
    return arrival.reason;
  };
  std::string free_port;
  {
    const auto b = make_zmq_transport();
    free_port = b->endpoint();
  }
  EXPECT_EQ(lost(free_port), "nobody listens there");
  EXPECT_EQ(lost("ipc:///nonexistent/inbox"), "nobody listens there");
  EXPECT_NE(lost("tcp://127.0.0.1"), "");
  EXPECT_NE(lost("udp://127.0.0.1:4"), "");
  EXPECT_NE(lost(""), "");
  EXPECT_NE(lost("inproc://elsewhere"), "");
  EXPECT_EQ(lost("tcp://host.example:4"), "expected an address, got the name 'host.example'");

  // Something that accepts and is silent.
  const int silent = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  ASSERT_EQ(bind(silent, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(silent, 1), 0);
  ASSERT_EQ(getsockname(silent, reinterpret_cast<sockaddr*>(&address), &length), 0);
  EXPECT_NE(lost("tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port))), "");
  close(silent);
}

// On one processor, with ZeroMQ's threads at the lowest priority: threads that they wake run before they continue.
class OthersFirst {
 public:
  OthersFirst() {
    cpu_set_t one;
    EXPECT_EQ(sched_getaffinity(0, sizeof before_, &before_), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu)
      if (CPU_ISSET(cpu, &before_)) CPU_SET(cpu, &one);
    EXPECT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  }
  ~OthersFirst() { sched_setaffinity(0, sizeof before_, &before_); }
  // Once they are there.
  void wait() const {
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::ifstream(task.path() / "comm") >> name;
      const sched_param none{};
      if (name.starts_with("ZMQbg/IO"))
        sched_setscheduler(std::stoi(task.path().filename().string()), SCHED_IDLE, &none);
    }
  }

 private:
  cpu_set_t before_;
};

// ZeroMQ's thread reports first that a handshake failed and then that the connection ended. By the second event, the
// thread that waits may have given up the connection already.
TEST(Transport, ConnectionsThatFailLeaveOthersAlone) {
  const OthersFirst others_first;
  const auto a = make_zmq_transport(), b = make_zmq_transport();
  a->connect(2, b->endpoint());
  // Somebody who takes connections and ends them.
  const int door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  ASSERT_EQ(bind(door, reinterpret_cast<sockaddr*>(&address), length), 0);
  ASSERT_EQ(listen(door, 8), 0);
  ASSERT_EQ(getsockname(door, reinterpret_cast<sockaddr*>(&address), &length), 0);
  std::jthread porter([&] {
    for (int guest; (guest = accept(door, nullptr, nullptr)) >= 0;) close(guest);
  });
  others_first.wait();
  for (int i = 0; i < 150; ++i) {
    a->connect(9, "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port)));
    if (next(*a).what == What::lost) continue;
    ADD_FAILURE() << "connection " << i << " is not told of";
    break;
  }
  a->send(2, {.kind = "hello"});
  EXPECT_EQ(next(*b).packet.kind, "hello");
  shutdown(door, SHUT_RDWR);
  porter.join();
  close(door);
}

TEST(Transport, ALostPeerMayComeBackElsewhere) {
  const auto a = make_zmq_transport();
  auto b = make_zmq_transport();
  a->connect(2, b->endpoint());
  a->connect(2, b->endpoint());
  a->send(2, {.kind = "one"});
  EXPECT_EQ(next(*b).packet.kind, "one");
  const auto c = make_zmq_transport();
  a->connect(2, c->endpoint());
  a->send(2, {.kind = "two"});
  EXPECT_EQ(next(*c).packet.kind, "two");
  b.reset();
  EXPECT_EQ(next(*a, 50ms).what, What::timeout) << "the first connection was closed by its owner";
}

}  // namespace
}  // namespace elinvar
