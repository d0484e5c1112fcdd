// Processes and messages that a running job refuses with a clear reason and without being disturbed.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <functional>
#include <optional>
#include <random>
#include <thread>
#include <zmq.hpp>

#include "comm/zmq_transport.h"
#include "elastic/protocol/message.h"
#include "tensor/base/file.h"
#include "tests/jobs/tiny_job.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;

// Speaks the protocol like a worker, with contents that the test chooses.
class Impostor {
 public:
  // Retries until the endpoint is open.
  explicit Impostor(const std::string& endpoint) : transport_(make_zmq_transport()) {
    const auto deadline = Transport::Clock::now() + std::chrono::seconds(20);
    while (Transport::Clock::now() < deadline) {
      transport_->connect(kUnknownCoordinator, endpoint);
      send(packet_of(
          {.payload = messages::Ask{.endpoint = transport_->endpoint(), .pid = 1, .protocol = kProtocolVersion}}, 0));
      if (std::optional<Packet> job = heard("job", deadline)) {
        job_ = std::move(*job);
        return;
      }
      transport_->disconnect(kUnknownCoordinator);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "no 'job' comes from " << endpoint;
  }
  const Packet& job() const { return job_; }
  void send(Packet message) {
    message.sender = self_;
    if (message.run == 0) message.run = job_.run;
    transport_->send(kUnknownCoordinator, std::move(message));
  }
  // Returns the next message of this kind; skips others.
  Packet next(const std::string& kind) {
    if (std::optional<Packet> message = heard(kind, Transport::Clock::now() + std::chrono::seconds(20)))
      return std::move(*message);
    ADD_FAILURE() << "no '" << kind << "' comes";
    return {};
  }
  // Returns the answer to a newcomer with this description.
  std::string refusal(const Json& about) {
    Packet hello = packet_of({.payload = messages::Hello{}}, 0);
    hello.body["about"].update(about);
    hello.body["about"]["endpoint"] = transport_->endpoint();
    send(std::move(hello));
    return next("refused").body.value("reason", "");
  }
  // Returns the answer to a worker whose program has this protocol version.
  std::string refusal_of_version(std::optional<int> version) {
    send(packet_of({.payload = messages::Ask{.endpoint = transport_->endpoint(), .pid = 1, .protocol = version}}, 0));
    return next("refused").body.value("reason", "");
  }

 private:
  std::optional<Packet> heard(const std::string& kind, Transport::Clock::time_point deadline) {
    while (true) {
      Arrival arrival = transport_->wait(deadline);
      if (arrival.what == Arrival::What::message && arrival.packet.kind == kind) return std::move(arrival.packet);
      if (arrival.what == Arrival::What::timeout || arrival.what == Arrival::What::lost) return std::nullopt;
    }
  }

  static constexpr PeerId kUnknownCoordinator = 1;
  std::unique_ptr<Transport> transport_;
  PeerId self_ = std::random_device()() | 2u;
  Packet job_;
};

class Refusals : public test::TinyJob {
 protected:
  static constexpr const char* kLong = "1000000";  // steps: the test stops it
  pid_t start_long(const std::vector<std::string>& more) const {
    std::vector<std::string> options = {"--steps", kLong};
    options.insert(options.end(), more.begin(), more.end());
    return start("run", options);
  }
  // The job continues as if nothing had happened.
  void expect_undisturbed(pid_t job, const std::vector<std::string>& key = {}) {
    const int64_t at = recorded("run");
    reach("run", static_cast<int>(at) + 20);
    std::vector<std::string> stop = {"ctl", folder_ / "run", "stop"};
    stop.insert(stop.end(), key.begin(), key.end());
    EXPECT_EQ(wait(spawn(stop, "ctl"), "ctl").code, 0);
    const test::Ended ended = wait(job, "run");
    EXPECT_EQ(ended.code, 0) << ended.err;
    const std::vector<std::string> lines = test::lines_of(ledger("run")), whole = test::lines_of(undisturbed());
    for (size_t i = 0; i + 1 < std::min(lines.size(), whole.size()); ++i) EXPECT_EQ(lines[i], whole[i]);
  }
  // Whether the running job reports the reason, within 20 s: a loaded machine is late to read messages.
  bool told(const std::string& reason) const {
    for (int i = 0; i < 200; ++i) {
      for (const Json& event : events("run", "reason"))
        if (event["reason"].get<std::string>().find(reason) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return false;
  }
};

TEST_F(Refusals, AWorkerOfAnotherContract) {
  const pid_t job = start_long({"--workers", "1"});
  reach("run", 10);
  const Json workers = status("run").value("workers", Json::array());
  ASSERT_EQ(workers.size(), 1u);
  const Json about = workers[0].at("about");
  const auto refusal = [&](const std::string& key, const Json& value) {
    Json other = about;
    other[key] = value;
    return Impostor(endpoint("run")).refusal(other);
  };
  EXPECT_EQ(refusal("config", "[run]\nseed = 6\n"), "its configuration is another one");
  EXPECT_EQ(refusal("data", std::string(32, '0')), "its data are others");
  EXPECT_EQ(refusal("numerics_version", 1000), "its numerics are of another version");
  EXPECT_EQ(refusal("protocol", 1000), "it speaks another version of the protocol");
  Json environment = about.at("environment");
  environment["build_id"] = "0123";
  EXPECT_NE(refusal("environment", environment).find("it is another build of this program, 0123 ("), std::string::npos);
  const std::string has = fmt::format("; the job has version {}: take the program of the job", kProtocolVersion);
  EXPECT_EQ(Impostor(endpoint("run")).refusal_of_version(1000),
            "it speaks another version of the protocol, 1000" + has);
  EXPECT_EQ(Impostor(endpoint("run")).refusal_of_version(std::nullopt),
            "it speaks another version of the protocol" + has);
  for (const char* reason : {"configuration", "data are", "numerics", "protocol", "another build"})
    EXPECT_TRUE(told(reason)) << reason;

  const test::Ended stranger = wait(spawn({"join", endpoint("run"), "--set", "data.data_seed=1"}));
  EXPECT_EQ(stranger.code, 3);
  EXPECT_NE(stranger.err.find("refused"), std::string::npos) << stranger.err;
  expect_undisturbed(job);
}

#ifdef ELINVAR_EMULATION
TEST_F(Refusals, AGpuOfAnotherKindWhereBitsAreFast) {
  const pid_t job = start("run", {"--steps", kLong, "--numerics", "fast", "--device", "emulated", "--workers", "1"});
  reach("run", 2);
  const Json workers = status("run").value("workers", Json::array());
  ASSERT_EQ(workers.size(), 1u);
  Json about = workers[0].at("about");
  EXPECT_EQ(about["environment"]["gpu"]["products"], "stand-ins");
  about["environment"]["gpu"]["products"] = "cuDNN 9";
  EXPECT_EQ(
      Impostor(endpoint("run")).refusal(about),
      "it computes on emulated with cuDNN 9, the run on emulated with stand-ins; with run.numerics = \"fast\" bits "
      "are those of one kind");
  about["environment"].erase("gpu");
  EXPECT_EQ(Impostor(endpoint("run")).refusal(about).find("it computes on cpu, the run on emulated"), 0u);
  EXPECT_EQ(wait(spawn({"ctl", folder_ / "run", "stop"}, "ctl"), "ctl").code, 0);
  EXPECT_EQ(wait(job, "run").code, 0);
}
#endif

TEST_F(Refusals, WhoHasNotTheKey) {
  ASSERT_EQ(wait(spawn({"keygen", folder_ / "key"})).code, 0);
  ASSERT_EQ(wait(spawn({"keygen", folder_ / "other"})).code, 0);
  const std::vector<std::string> key = {"--key", folder_ / "key"};
  const pid_t job = start_long({"--workers", "2", "--key", key[1]});
  reach("run", 10);
  const test::Ended other = wait(spawn({"join", endpoint("run"), "--key", folder_ / "other"}));
  EXPECT_EQ(other.code, 3);
  EXPECT_NE(other.err.find("key"), std::string::npos) << other.err;
  const test::Ended plain = wait(spawn({"join", endpoint("run")}));
  EXPECT_EQ(plain.code, 3);
  EXPECT_NE(plain.err.find("key"), std::string::npos) << plain.err;
  const test::Ended control = wait(spawn({"ctl", endpoint("run"), "stop"}));
  EXPECT_EQ(control.code, 3);
  EXPECT_NE(control.err.find("key"), std::string::npos) << control.err;
  EXPECT_TRUE(told("key"));
  expect_undisturbed(job, key);
}

// Sends frames that are not messages, too many or too long frames, and meaningless messages, to coordinator and worker.
TEST_F(Refusals, WhatMakesNoSense) {
  const pid_t job = start_long({"--workers", "2"});
  reach("run", 10);
  const std::string worker = status("run").at("workers").at(0).at("about").at("endpoint");
  zmq::context_t context;
  for (const std::string& inbox : {endpoint("run"), worker}) {
    const auto send = [&](const std::vector<std::string>& frames) {
      zmq::socket_t push(context, zmq::socket_type::push);
      push.set(zmq::sockopt::linger, 2000);
      push.connect(inbox);
      for (size_t i = 0; i < frames.size(); ++i)
        push.send(zmq::buffer(frames[i]), i + 1 < frames.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
    };
    const std::string header = std::string("ELNV\1\0\0\0", 8) + std::string(36, '\0');
    send({"GET / HTTP/1.1"});
    send({header, std::string(size_t{2} << 20, ' ')});
    send({header, "{\"kind\":"});
    send(std::vector<std::string>(5000, header));
    send({header, std::string(size_t{65} << 20, 'x')});
  }
  {
    Impostor impostor(endpoint("run"));
    for (const char* kind : {"ask", "ctl", "hello", "facts", "saved", "alive", "ready", "nonsense"}) {
      impostor.send({.kind = kind});
      impostor.send({.kind = kind, .step = -5, .body = {{"endpoint", 7}, {"attempt", "x"}, {"part", -1}}});
      impostor.send({.kind = kind, .step = INT64_MAX, .body = {{"endpoint", "tcp://"}, {"state", "zz"}}});
    }
    for (const char* event : {"audit", "hold", "generation", "hello", "flip"})
      for (const Json& about : {Json(), Json("audit"), Json::object(), Json{{"step", 1}}})
        impostor.send({.kind = "sabotaged", .body = {{"event", event}, {"about", about}}});
    for (int i = 0; i < 10; ++i) impostor.send(packet_of({.payload = messages::StateSent{.peer = 1}}, 0));
    Impostor again(endpoint("run"));
    Packet hello = packet_of({.payload = messages::Hello{.about = {.endpoint = "tcp://127.0.0.1:1"}}}, 0);
    hello.body["about"]["environment"] = {{"isa", "scalar"}, {"device", "cpu"}, {"threads", 1}};
    for (const Json& promised : {Json("many"), Json(INT64_MAX), Json(int64_t{1} << 49)}) {
      hello.body["promised"] = promised;
      again.send(hello);
    }
    hello.body["promised"] = 0;
    hello.generation = INT64_MAX;
    again.send(hello);
    hello = packet_of({.payload = messages::Hello{.about = {.endpoint = "tcp://127.0.0.1:1"}}}, 0);
    hello.body["about"]["environment"] = {{"isa", "scalar"}, {"device", "cpu"}, {"threads", "two"}};
    again.send(hello);
  }
  reach("run", static_cast<int>(recorded("run")) + 20);  // steps after all of these messages
  EXPECT_TRUE(told("at least 2 expected"));
  EXPECT_TRUE(told("body of 2097152 bytes"));
  EXPECT_TRUE(told("malformed 'hello': field 'promised': expected an integer"));
  EXPECT_TRUE(told("malformed 'hello': field 'promised': expected an integer from -1 to 1125899906842624, got 92233"));
  EXPECT_TRUE(told("malformed 'hello': expected a promised generation up to 1000001, got 562949953421312"));
  EXPECT_TRUE(told("malformed 'hello': expected a generation and a step from 0 to"));
  EXPECT_TRUE(told("malformed 'hello': environment.threads: expected a number"));
  EXPECT_TRUE(told("malformed 'ask'"));
  EXPECT_TRUE(told("malformed 'facts'"));
  EXPECT_TRUE(told("malformed 'sabotaged'"));
  const std::string log = read_file(folder_ / "run" / "events.jsonl");
  for (const char* event : {"audit", "flip", "fed"})
    EXPECT_EQ(log.find(fmt::format(R"("event":"{}")", event)), std::string::npos) << event;
  EXPECT_EQ(status("run").at("generation"), 1) << "nobody was evicted for it";
  expect_undisturbed(job);
}

// The same before any worker has come.
TEST_F(Refusals, AFirstHelloThatMakesNoSense) {
  const std::string socket = folder_ / "socket";
  const pid_t job = start_long({"--workers", "1", "--listen", "ipc://" + socket});
  Impostor impostor("ipc://" + socket);
  const Json environment = {{"isa", "scalar"}, {"device", "cpu"}, {"threads", 1}};
  const Packet whole = packet_of({.payload = messages::Hello{.about = {.endpoint = "tcp://127.0.0.1:1",
                                                                       .config = read_file(folder_ / "job.toml"),
                                                                       .steps = 1,
                                                                       .parameters = 1,
                                                                       .samples = 1,
                                                                       .numerics_version = 1,
                                                                       .protocol = 1,
                                                                       .environment = environment}}},
                                 0);
  const auto spoiled = [&](const std::function<void(Json&)>& spoil) {
    Packet hello = whole;
    spoil(hello.body["about"]);
    return hello;
  };
  for (const char* config : {"", "[run]\nsteps = -1\n", "[model]"})
    impostor.send(spoiled([&](Json& about) { about["config"] = config; }));
  impostor.send({.kind = "hello"});
  impostor.send({.kind = "hello", .body = {{"config", 3}}});
  for (const char* field : {"numerics_version", "protocol", "steps", "data"})
    impostor.send(spoiled([&](Json& about) { about.erase(field); }));
  for (const char* field : {"device", "isa"})
    impostor.send(spoiled([&](Json& about) { about["environment"].erase(field); }));
  impostor.send(spoiled([](Json& about) { about["environment"]["build_id"] = 7; }));
  impostor.send(spoiled([](Json& about) { about["steps"] = 0; }));
  impostor.send(whole);  // no such build exists
  impostor.send(packet_of({.payload = messages::Failed{.reason = "no reason"}}, 0));
  impostor.send({.kind = "failed", .body = {{"reason", 7}}});
  expect_undisturbed(job);
}

}  // namespace
}  // namespace elinvar
