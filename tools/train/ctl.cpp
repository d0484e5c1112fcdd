// `train ctl`: asks a running job for its status, or for a change.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "comm/endpoint.h"
#include "comm/zmq_transport.h"
#include "tensor/check.h"
#include "tensor/file.h"
#include "tools/train/commands.h"

namespace elinvar {
namespace {

using Json = nlohmann::json;

void print_status(const Json& s) {
  fmt::print("{}: step {} of {}, generation {}, {} workers\n", s.at("phase").get<std::string>(),
             s.at("step").get<int64_t>(), s.at("steps").get<int64_t>(), s.at("generation").get<int64_t>(),
             s.at("workers").size());
  for (const Json& w : s.at("workers")) {
    const Json environment = w.at("about").value("environment", Json::object());
    fmt::print("  worker {}: {}, {} virtual ranks, step {}, {} on {}, pid {}\n", w.at("id").get<int>(),
               w.at("state").get<std::string>(), w.at("virtual_ranks").get<int>(), w.at("step").get<int64_t>(),
               environment.value("isa", "?"), environment.value("host", "?"), w.at("about").value("pid", 0));
  }
}

}  // namespace

int ctl(const CtlCommand& command) {
  std::string endpoint = command.job;
  if (std::filesystem::is_directory(command.job)) {
    const std::filesystem::path path = std::filesystem::path(command.job) / "coordinator.json";
    check(std::filesystem::exists(path), "{} is no run directory of a job: it has no coordinator.json", command.job);
    endpoint = Json::parse(read_file(path)).at("endpoint").get<std::string>();
  }
  std::optional<JobKey> key;
  if (!command.key.empty()) key = JobKey::load(command.key);
  const std::unique_ptr<Transport> transport = make_zmq_transport({.listen = command.listen, .key = key});
  constexpr PeerId kJob = 1;
  transport->connect(kJob, to_string(resolved(parse_endpoint(endpoint))));
  transport->send(kJob, {.kind = "ctl",
                         .sender = (static_cast<PeerId>(std::random_device{}()) << 32) | 2,
                         .body = {{"endpoint", transport->endpoint()},
                                  {"command", command.what},
                                  {"worker", command.number},
                                  {"workers", command.number}}});
  const auto deadline = Transport::Clock::now() + std::chrono::seconds(10);
  while (true) {
    const Arrival arrival = transport->wait(deadline);
    if (arrival.what == Arrival::What::lost) fail("no job at {}: {}", endpoint, arrival.reason);
    if (arrival.what == Arrival::What::timeout) fail("the job at {} does not answer", endpoint);
    if (arrival.what != Arrival::What::message || arrival.message.kind != "answer") continue;
    const Json& answer = arrival.message.body;
    if (answer.contains("error")) fail("{}", answer["error"].get<std::string>());
    if (command.json) fmt::print("{}\n", answer.dump(2));
    else if (command.what == "status") print_status(answer);
    else fmt::print("asked\n");
    return 0;
  }
}

}  // namespace elinvar
