#include "tools/launch/link_measurement.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "comm/endpoint.h"
#include "tensor/base/check.h"
#include "tools/launch/companions.h"

namespace elinvar {
namespace {

using namespace std::chrono_literals;
using OrderedJson = nlohmann::ordered_json;

constexpr size_t kMessage = size_t{4} << 20;  // bytes: a bucket of gradients
constexpr int kMessages = 8;                  // of a round, all of which stay in memory until its end
constexpr int kRounds = 3, kTrips = 200;      // that are measured, after one and some that are not
constexpr int kTripsBefore = 20;

double seconds_of(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// One of the two processes.
class LinkEnd {
 public:
  LinkEnd(const ZmqOptions& options, Companions& companions)
      : companions_(companions),
        me_(static_cast<PeerId>(companions.index()) + 1),
        other_(3 - me_),
        transport_(make_zmq_transport(options)) {
    transport_->connect(other_, companions.exchange(transport_->endpoint())[other_ - 1]);
  }

  // The first process asks, the second answers.
  double trip_seconds() {
    std::vector<double> seconds;
    for (int i = 0; i < kTripsBefore + kTrips; ++i) {
      const double began = seconds_of(CLOCK_MONOTONIC);
      if (me_ == 1) transport_->send(other_, {.kind = "ask", .sender = me_});
      (void)receive();
      if (me_ == 2) transport_->send(other_, {.kind = "answer", .sender = me_});
      if (i >= kTripsBefore) seconds.push_back(seconds_of(CLOCK_MONOTONIC) - began);
    }
    return median_of(std::move(seconds));
  }

  // Both send a round of large messages to each other. Returns the seconds, and those of this process's threads.
  std::pair<double, double> round_seconds(const std::shared_ptr<std::vector<std::byte>>& bytes) {
    companions_.meet();
    const double began = seconds_of(CLOCK_MONOTONIC), worked = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < kMessages; ++i)
      transport_->send(other_,
                       {.kind = "bytes", .sender = me_, .blobs = {{bytes, bytes->data() + i * kMessage, kMessage}}});
    std::vector<Packet> arrived;
    for (int i = 0; i < kMessages; ++i) arrived.push_back(receive());
    companions_.meet();  // the other one has what this one sent
    return {seconds_of(CLOCK_MONOTONIC) - began, seconds_of(CLOCK_PROCESS_CPUTIME_ID) - worked};
  }

 private:
  Packet receive() {
    Arrival arrival = transport_->wait(Transport::Clock::now() + 30s);
    if (arrival.what != Arrival::What::message)
      fail("no message between two processes of this machine: {}", arrival.reason);
    return std::move(arrival.packet);
  }

  Companions& companions_;
  PeerId me_, other_;
  std::unique_ptr<Transport> transport_;
};

OrderedJson measure_end(ZmqOptions options, Companions& companions) {
  Endpoint listen = parse_endpoint(options.listen);
  if (listen.scheme == "tcp") listen = parse_endpoint("tcp://127.0.0.1:0");
  else listen.place += fmt::format(".link-{}", ::getpid());
  options.listen = to_string(listen);
  options.advertise.clear();
  LinkEnd end(options, companions);
  const double trip = end.trip_seconds();
  const auto bytes = std::make_shared<std::vector<std::byte>>(kMessage * kMessages, std::byte{1});
  std::vector<double> seconds, worked;
  for (int i = 0; i <= kRounds; ++i) {
    const auto [round, of_threads] = end.round_seconds(bytes);
    if (i == 0) continue;
    seconds.push_back(round);  // of which the least has been disturbed least by other programs
    worked.push_back(of_threads);
  }
  constexpr auto kBytes = static_cast<double>(kMessage * kMessages);
  return {{"latency", trip / 2},
          {"bandwidth", kBytes / *std::ranges::min_element(seconds)},
          {"processor", median_of(worked) / kBytes}};
}

}  // namespace

MeasuredLink measure_link(const ZmqOptions& like) {
  const OrderedJson json =
      in_children(2, [&](Companions& companions) { return measure_end(like, companions); }).front();
  return {.latency = json.at("latency"), .bandwidth = json.at("bandwidth"), .processor = json.at("processor")};
}

}  // namespace elinvar
