// Messages over ZeroMQ: they arrive whole and in order, what is lost is told, and strangers are kept out.
#include "comm/transport.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <thread>
#include <zmq.hpp>

#include "comm/endpoint.h"
#include "comm/job_key.h"
#include "comm/zmq_transport.h"
#include "tensor/check.h"
#include "tests/temporary_folder.h"

namespace elinvar {
namespace {

using namespace std::chrono_literals;
using test::message_of;
using test::TemporaryFolder;
using What = Arrival::What;
using Clock = Transport::Clock;

Arrival next(Transport& transport, std::chrono::milliseconds within = 10s) {
  return transport.wait(Clock::now() + within);
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Blob bytes_of(size_t count, unsigned seed) {
  auto owner = std::make_shared<std::vector<std::byte>>(count);
  for (size_t i = 0; i < count; ++i) (*owner)[i] = static_cast<std::byte>((i * 2654435761u + seed) >> 13);
  const std::byte* data = owner->data();
  return {std::move(owner), data, count};
}

bool equal(const Blob& a, const Blob& b) { return a.bytes == b.bytes && std::memcmp(a.data, b.data, a.bytes) == 0; }

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

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
    Message message{.kind = "count", .run = 5, .sender = 1, .generation = 3, .step = i};
    message.body["i"] = i;
    // Small ones are copied on their way, large ones are not.
    for (int k = 0; k < i % 4; ++k) message.blobs.push_back(bytes_of(static_cast<size_t>(i * 37 % 20000), 7u));
    a->send(2, std::move(message));
  }
  for (int i = 0; i < 1000; ++i) {
    const Arrival arrival = next(*b);
    ASSERT_EQ(arrival.what, What::message) << arrival.reason;
    const Message& message = arrival.message;
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
      EXPECT_EQ(arrival.message.step, expected[arrival.message.sender]++);
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
    EXPECT_EQ(arrival.message.step, i);
    ASSERT_EQ(arrival.message.blobs.size(), 1u);
    EXPECT_TRUE(equal(arrival.message.blobs[0], blob));
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
  std::vector<std::string> kinds{next(*b).message.kind, next(*b).message.kind};
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
    EXPECT_EQ(arrival.message.step, expected[arrival.message.sender]++);
    ASSERT_EQ(arrival.message.blobs.size(), 1u) << "frames of two senders must not mix";
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

TEST(Transport, ALostPeerMayComeBackElsewhere) {
  const auto a = make_zmq_transport();
  auto b = make_zmq_transport();
  a->connect(2, b->endpoint());
  a->connect(2, b->endpoint());
  a->send(2, {.kind = "one"});
  EXPECT_EQ(next(*b).message.kind, "one");
  const auto c = make_zmq_transport();
  a->connect(2, c->endpoint());
  a->send(2, {.kind = "two"});
  EXPECT_EQ(next(*c).message.kind, "two");
  b.reset();
  EXPECT_EQ(next(*a, 50ms).what, What::timeout) << "the first connection was closed by its owner";
}

// Another process that answers what it is asked: `bench transport-answer`.
class Answerer {
 public:
  explicit Answerer(std::vector<std::string> words) {
    words.insert(words.begin(), {ELINVAR_BIN_DIR "/bench", "transport-answer"});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    child_ = fork();
    if (child_ == 0) {
      dup2(ends[1], 1);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(ends[1]);
    char c;
    while (read(ends[0], &c, 1) == 1 && c != '\n') endpoint_ += c;
    close(ends[0]);
  }
  ~Answerer() { die(); }
  const std::string& endpoint() const { return endpoint_; }
  void stop() const { kill(child_, SIGSTOP); }
  void die() {
    if (child_ <= 0) return;
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
    child_ = 0;
  }

 private:
  pid_t child_ = 0;
  std::string endpoint_;
};

TEST(Transport, AKilledProcessIsLostAtOnce) {
  const TemporaryFolder folder;
  for (const std::string scheme : {"tcp", "ipc"}) {
    const auto inbox = [&](const char* name) {
      return scheme == "tcp" ? "tcp://127.0.0.1:0" : "ipc://" + (folder / name).string();
    };
    const auto a = make_zmq_transport({.listen = inbox("a")});
    std::vector<double> seconds;
    for (int i = 0; i < 5; ++i) {
      Answerer b({inbox("b")});
      a->connect(2, b.endpoint());
      Message hello{.kind = "hello", .sender = 1};
      hello.body["endpoint"] = a->endpoint();
      a->send(2, std::move(hello));
      ASSERT_EQ(next(*a).message.kind, "answer");
      const auto start = Clock::now();
      b.die();
      const Arrival arrival = next(*a);
      seconds.push_back(seconds_since(start));
      ASSERT_EQ(arrival.what, What::lost);
      EXPECT_EQ(arrival.peer, 2u);
    }
    std::sort(seconds.begin(), seconds.end());
    EXPECT_LT(seconds[2], 0.1) << scheme;
  }
}

// A connection that lives on in a child process would hide its owner's death from the peer.
TEST(Transport, ProgramsThatAreStartedInheritNothing) {
  const auto inherited = [] {
    std::set<int> descriptors;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      const int descriptor = std::stoi(entry.path().filename().string());
      const int flags = fcntl(descriptor, F_GETFD);
      if (flags >= 0 && (flags & FD_CLOEXEC) == 0) descriptors.insert(descriptor);
    }
    return descriptors;
  };
  const std::set<int> before = inherited();
  const JobKey key = JobKey::make();
  const auto a = make_zmq_transport({.key = key}), b = make_zmq_transport({.key = key});
  a->connect(2, b->endpoint());
  a->send(2, {.kind = "hello"});
  EXPECT_EQ(next(*b).message.kind, "hello");
  EXPECT_EQ(inherited(), before);
}

TEST(Transport, AKilledProcessIsLostWhileMuchIsQueued) {
  const auto a = make_zmq_transport();
  Answerer b({"tcp://127.0.0.1:0"});
  a->connect(2, b.endpoint());
  const Blob blob = bytes_of(4 << 20, 1);
  for (int i = 0; i < 200; ++i) a->send(2, {.kind = "take", .sender = 1, .blobs = {blob}});
  b.die();
  const auto start = Clock::now();
  EXPECT_EQ(next(*a).what, What::lost);
  EXPECT_LT(seconds_since(start), 5);
  for (int i = 0; i < 1000 && blob.owner.use_count() > 1; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(blob.owner.use_count(), 1) << "what was queued is let go";
}

void send_raw(const std::string& endpoint, const std::string& bytes) {
  const int raw = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in address = loopback(parse_endpoint(endpoint).port);
  ASSERT_EQ(connect(raw, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(send(raw, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  std::this_thread::sleep_for(50ms);
  close(raw);
}

// What is queued for a process that does not read is let go after the time to linger, and no later.
TEST(Transport, AHungPeerIsGivenUp) {
  const Blob blob = bytes_of(4 << 20, 1);
  for (const bool at_the_end : {false, true}) {
    auto a = make_zmq_transport({.linger = 200ms});
    Answerer b({"tcp://127.0.0.1:0"});
    a->connect(2, b.endpoint());
    Message hello{.kind = "hello", .sender = 1};
    hello.body["endpoint"] = a->endpoint();
    a->send(2, std::move(hello));
    ASSERT_EQ(next(*a).message.kind, "answer");
    b.stop();
    for (int i = 0; i < 50; ++i) a->send(2, {.kind = "take", .sender = 1, .blobs = {blob, blob}});
    const auto start = Clock::now();
    if (at_the_end) a.reset();
    else a->disconnect(2);
    while (a && blob.owner.use_count() > 1 && seconds_since(start) < 10) {
      EXPECT_EQ(next(*a, 20ms).what, What::timeout) << "a peer that was disconnected is not reported";
    }
    EXPECT_EQ(blob.owner.use_count(), 1);
    EXPECT_GE(seconds_since(start), 0.2);
    EXPECT_LT(seconds_since(start), 4);
  }
}

// What a stranger can do to an inbox; afterwards, it still takes messages.
TEST(Transport, StrangersAreTurnedAway) {
  const auto inbox = make_zmq_transport({.limits = {.body_bytes = 1000, .blobs = 3, .blob_bytes = 5000}});
  zmq::context_t context;
  const auto send = [&](const std::vector<std::string>& frames) {
    zmq::socket_t push(context, zmq::socket_type::push);
    push.set(zmq::sockopt::linger, 1000);
    push.connect(inbox->endpoint());
    for (size_t i = 0; i < frames.size(); ++i)
      push.send(zmq::buffer(frames[i]), i + 1 < frames.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
  };
  const auto reason = [&] {
    const Arrival arrival = next(*inbox);
    EXPECT_EQ(arrival.what, What::refused);
    return arrival.reason;
  };
  send({""});
  EXPECT_EQ(reason(), "1 frames, at least 2 expected");
  send({"GET / HTTP/1.1", "", ""});
  EXPECT_EQ(reason(), "not a message of this protocol");
  send({std::string(44, '\0'), "{}"});
  EXPECT_EQ(reason(), "not a message of this protocol");
  const std::string header = std::string("ELNV\1\0\0\0", 8) + std::string(32, '\0');
  const std::string three("\3\0\0\0", 4), none(4, '\0');
  send({header + three, "{}", "", "", "", "", "", ""});
  EXPECT_EQ(reason(), "4 blobs, 3 expected from the header");
  send({header + none, std::string(1001, ' ')});
  EXPECT_EQ(reason(), "a body of 1001 bytes, at most 1000 expected");
  send({"ELNV", "{}", std::string(5001, 'x')});  // ZeroMQ closes the connection: no frame of it is kept
  EXPECT_EQ(next(*inbox, 100ms).what, What::timeout);

  // Bytes that are not ZeroMQ's.
  send_raw(inbox->endpoint(), std::string(100, 'G'));
  EXPECT_NE(reason().find("handshake"), std::string::npos);

  const auto friendly = make_zmq_transport();
  friendly->connect(1, inbox->endpoint());
  friendly->send(1, {.kind = "hello"});
  EXPECT_EQ(next(*inbox).message.kind, "hello");
}

TEST(Transport, OnlyWhoHoldsTheKeyIsHeard) {
  const JobKey key = JobKey::make(), other = JobKey::make();
  const TemporaryFolder folder;
  const auto inbox = [&](const std::string& scheme, const char* name) {
    return scheme == "tcp" ? "tcp://127.0.0.1:0" : "ipc://" + (folder / name).string();
  };
  for (const std::string scheme : {"tcp", "ipc"}) {
    const auto a = make_zmq_transport({.listen = inbox(scheme, "a"), .key = key});
    const auto b = make_zmq_transport({.listen = inbox(scheme, "b"), .key = key});
    a->connect(2, b->endpoint());
    a->send(2, {.kind = "hello", .blobs = {bytes_of(1 << 20, 5)}});
    const Arrival arrival = next(*b);
    ASSERT_EQ(arrival.what, What::message) << arrival.reason;
    EXPECT_TRUE(equal(arrival.message.blobs[0], bytes_of(1 << 20, 5)));

    // A key of another job; none; the public key without the secret one.
    const JobKey stolen{.public_key = key.public_key, .secret_key = other.secret_key};
    for (const std::optional<JobKey>& wrong : {std::optional(other), std::optional<JobKey>(), std::optional(stolen)}) {
      const auto stranger = make_zmq_transport({.listen = inbox(scheme, "c"), .key = wrong});
      stranger->connect(2, b->endpoint());
      stranger->send(2, {.kind = "let me in"});
      const auto start = Clock::now();
      const Arrival lost = next(*stranger);
      EXPECT_EQ(lost.what, What::lost);
      EXPECT_LT(seconds_since(start), 4) << "told by the handshake, not by its timeout: " << lost.reason;
      const Arrival refused = next(*b);
      EXPECT_EQ(refused.what, What::refused) << refused.message.kind;
      EXPECT_NE((lost.reason + refused.reason).find("key"), std::string::npos) << lost.reason << refused.reason;
    }

    // Nor does a member talk to an inbox that has not proved to be of the job.
    const auto plain = make_zmq_transport({.listen = inbox(scheme, "d")});
    a->connect(3, plain->endpoint());
    a->send(3, {.kind = "secret"});
    EXPECT_EQ(next(*a).what, What::lost);
    const Arrival at_plain = next(*plain, 100ms);
    EXPECT_NE(at_plain.what, What::message);
  }
}

// ZeroMQ's first protocol, which knew no keys: a greeting without a name and a message of one frame.
TEST(Transport, AnOldProtocolIsNoWayAroundTheKey) {
  const std::string hello("\1\0\6\0hello", 9);
  const auto plain = make_zmq_transport();
  send_raw(plain->endpoint(), hello);
  EXPECT_EQ(next(*plain).reason, "1 frames, at least 2 expected");
  const auto guarded = make_zmq_transport({.key = JobKey::make()});
  send_raw(guarded->endpoint(), hello);
  const Arrival arrival = next(*guarded, 200ms);
  EXPECT_TRUE(arrival.what == What::timeout || arrival.reason.find("handshake") != std::string::npos) << arrival.reason;
}

// The gatekeeper is what keeps out a client that knows the public key alone and has a pair of its own.
TEST(Transport, ThePublicKeyAloneOpensNothing) {
  const JobKey key = JobKey::make(), own = JobKey::make();
  const auto inbox = make_zmq_transport({.key = key});
  zmq::context_t context;
  zmq::socket_t push(context, zmq::socket_type::push);
  push.set(zmq::sockopt::linger, 0);
  push.set(zmq::sockopt::curve_serverkey, key.public_key);
  push.set(zmq::sockopt::curve_publickey, own.public_key);
  push.set(zmq::sockopt::curve_secretkey, own.secret_key);
  push.connect(inbox->endpoint());
  push.send(zmq::str_buffer("let me in"));
  const Arrival arrival = next(*inbox);
  EXPECT_EQ(arrival.what, What::refused);
  EXPECT_EQ(arrival.reason, "the key is another");
}

TEST(Transport, ListeningBeyondThisHostNeedsAKey) {
  const auto refused = [](const ZmqOptions& options) {
    return message_of<UsageError>([&] { make_zmq_transport(options); });
  };
  const JobKey key = JobKey::make();
  EXPECT_NE(refused({.listen = "tcp://192.0.2.1:0"}).find("give a key"), std::string::npos);
  EXPECT_NE(refused({.listen = "tcp://0.0.0.0:0"}).find("give a key"), std::string::npos);
  EXPECT_NE(refused({.listen = "tcp://*:0", .advertise = "127.0.0.1"}).find("give a key"), std::string::npos);
  EXPECT_NE(refused({.listen = "tcp://*:0", .key = key}).find("advertise"), std::string::npos);
  EXPECT_NE(refused({.listen = "tcp://192.0.2.1:0", .key = key}).find("address of this host"), std::string::npos);
  EXPECT_NE(refused({.listen = "ipc://" + std::string(200, 'x')}), "");
  EXPECT_NE(refused({.listen = "inbox"}), "");
  const auto a = make_zmq_transport({.listen = "tcp://*:0", .advertise = "127.0.0.1", .key = key});
  EXPECT_EQ(a->endpoint().substr(0, 16), "tcp://127.0.0.1:");
  EXPECT_NE(parse_endpoint(a->endpoint()).port, 0);
  EXPECT_NE(message_of<Failure>([&] { make_zmq_transport({.listen = a->endpoint()}); }), "") << "it is in use";
}

TEST(JobKey, IsKeptForItsOwnerAlone) {
  const TemporaryFolder folder;
  const JobKey key = JobKey::make();
  key.save(folder / "keys");
  const std::filesystem::path file = folder / "keys" / "job.key";
  EXPECT_EQ(std::filesystem::status(file).permissions(), std::filesystem::perms(0600));
  const JobKey loaded = JobKey::load(folder / "keys");
  EXPECT_EQ(loaded.secret_key, key.secret_key);
  EXPECT_EQ(loaded.public_key, key.public_key);
  EXPECT_NE(JobKey::make().secret_key, key.secret_key);

  EXPECT_NE(message_of<Failure>([&] { key.save(folder / "keys"); }), "") << "a key is never overwritten";
  EXPECT_NE(message_of<Failure>([&] { JobKey::load(folder / "nowhere"); }), "");
  std::filesystem::permissions(file, std::filesystem::perms(0640));
  EXPECT_NE(message_of<UsageError>([&] { JobKey::load(folder / "keys"); }).find("chmod 600"), std::string::npos);
  for (const std::string& damaged : {key.secret_key.substr(1), key.secret_key + "x", std::string(40, '"')}) {
    folder.write("keys/job.key", damaged);
    std::filesystem::permissions(file, std::filesystem::perms(0600));
    EXPECT_NE(message_of<Failure>([&] { JobKey::load(folder / "keys"); }), "") << damaged;
  }
}

TEST(Endpoint, IsParsed) {
  for (const char* text :
       {"tcp://127.0.0.1:80", "tcp://[::1]:0", "tcp://host.example:65535", "ipc:///a:b", "inproc://x"})
    EXPECT_EQ(to_string(parse_endpoint(text)), text);
  for (const char* text : {"", "tcp", "tcp://", "tcp://:80", "tcp://host", "tcp://host:", "tcp://host:65536",
                           "tcp://h:-1", "tcp://h:8x", "tcp://::1:80", "udp://h:1", "ipc://", "://x"})
    EXPECT_NE(message_of<UsageError>([&] { parse_endpoint(text); }), "") << text;
  const auto leaves = [](const char* text) { return leaves_host(parse_endpoint(text)); };
  for (const char* text : {"tcp://127.0.0.1:1", "tcp://127.8.0.1:1", "tcp://[::1]:1", "tcp://localhost:1", "ipc://x"})
    EXPECT_FALSE(leaves(text)) << text;
  for (const char* text : {"tcp://10.0.0.1:1", "tcp://*:1", "tcp://0.0.0.0:1", "tcp://[::]:1", "tcp://127.example:1",
                           "tcp://eth0:1", "tcp://lo:1"})
    EXPECT_TRUE(leaves(text)) << text;
  EXPECT_TRUE(is_wildcard(parse_endpoint("tcp://*:1")));
  EXPECT_FALSE(is_wildcard(parse_endpoint("tcp://10.0.0.1:1")));
}

TEST(Endpoint, NamesAreResolved) {
  for (const char* text : {"tcp://127.0.0.1:80", "tcp://[::1]:80", "tcp://*:80", "ipc://name"}) {
    EXPECT_FALSE(has_name(parse_endpoint(text))) << text;
    EXPECT_EQ(to_string(resolved(parse_endpoint(text))), text);
  }
  const Endpoint local = resolved(parse_endpoint("tcp://localhost:80"));
  EXPECT_TRUE(to_string(local) == "tcp://127.0.0.1:80" || to_string(local) == "tcp://[::1]:80") << to_string(local);
  EXPECT_NE(message_of<Failure>([] { resolved(parse_endpoint("tcp://no.such.host.invalid:9")); }), "");
}

TEST(Endpoint, AnAddressTowardsAPeerIsOneToListenOn) {
  EXPECT_EQ(address_towards(parse_endpoint("tcp://127.0.0.1:9")), "127.0.0.1");
  EXPECT_EQ(address_towards(parse_endpoint("tcp://localhost:9")).find_first_not_of("0123456789.:[]"),
            std::string::npos);
  EXPECT_NE(message_of<UsageError>([] { address_towards(parse_endpoint("ipc://x")); }), "");
  EXPECT_NE(message_of<Failure>([] { address_towards(parse_endpoint("tcp://no.such.host.invalid:9")); }), "");
}
}  // namespace
}  // namespace elinvar
