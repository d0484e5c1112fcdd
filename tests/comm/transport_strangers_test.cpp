// Strangers cannot send to a job, and the key that tells members from strangers is kept safe.
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <zmq.hpp>

#include "comm/job_key.h"
#include "comm/zmq_transport.h"
#include "tensor/base/check.h"
#include "tests/comm/wire.h"
#include "tests/support/temporary_folder.h"

namespace elinvar {
namespace {

using namespace std::chrono_literals;
using test::bytes_of;
using test::equal;
using test::message_of;
using test::next;
using test::seconds_since;
using test::send_raw;
using test::TemporaryFolder;
using What = Arrival::What;
using Clock = Transport::Clock;

// Whatever a stranger does to an inbox, the inbox still receives messages afterwards.
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
  EXPECT_EQ(next(*inbox).packet.kind, "hello");
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
    EXPECT_TRUE(equal(arrival.packet.blobs[0], bytes_of(1 << 20, 5)));

    // A key of another job; none; the public key without the secret one.
    const JobKey stolen{.public_key = key.public_key, .secret_key = other.secret_key};
    for (const std::optional<JobKey>& wrong : {std::optional(other), std::optional<JobKey>(), std::optional(stolen)}) {
      const auto stranger = make_zmq_transport({.listen = inbox(scheme, "c"), .key = wrong});
      stranger->connect(2, b->endpoint());
      stranger->send(2, {.kind = "let me in"});
      const auto start = Clock::now();
      const Arrival lost = next(*stranger);
      EXPECT_EQ(lost.what, What::lost);
      EXPECT_FALSE(lost.accepted);
      EXPECT_LT(seconds_since(start), 4) << "told by the handshake, not by its timeout: " << lost.reason;
      const Arrival refused = next(*b);
      EXPECT_EQ(refused.what, What::refused) << refused.packet.kind;
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

// The authenticator refuses a client that knows only the public key and has a key pair of its own.
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

}  // namespace
}  // namespace elinvar
