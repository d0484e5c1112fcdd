// Messages over ZeroMQ between processes, one of which is killed, stopped or started meanwhile.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <thread>

#include "comm/job_key.h"
#include "comm/zmq_transport.h"
#include "tests/comm/wire.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

using namespace std::chrono_literals;
using test::Answerer;
using test::bytes_of;
using test::next;
using test::seconds_since;
using test::TemporaryFolder;
using What = Arrival::What;
using Clock = Transport::Clock;

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
      Packet hello{.kind = "hello", .sender = 1};
      hello.body["endpoint"] = a->endpoint();
      a->send(2, std::move(hello));
      ASSERT_EQ(next(*a).packet.kind, "answer");
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

// A connection that a child process inherited would hide its owner's death from the peer.
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
  EXPECT_EQ(next(*b).packet.kind, "hello");
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

// Messages queued for a process that does not read are dropped after the linger time, and no later.
TEST(Transport, AHungPeerIsGivenUp) {
  const Blob blob = bytes_of(4 << 20, 1);
  for (const bool at_the_end : {false, true}) {
    auto a = make_zmq_transport({.linger = 200ms});
    Answerer b({"tcp://127.0.0.1:0"});
    a->connect(2, b.endpoint());
    Packet hello{.kind = "hello", .sender = 1};
    hello.body["endpoint"] = a->endpoint();
    a->send(2, std::move(hello));
    ASSERT_EQ(next(*a).packet.kind, "answer");
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

}  // namespace
}  // namespace elinvar
