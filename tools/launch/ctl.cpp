// `ctl`: asks a running job for its status or for a change.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>
#include <utility>

#include "comm/fields.h"
#include "comm/zmq_transport.h"
#include "elastic/protocol/message.h"
#include "elastic/step/arrangement.h"
#include "tensor/base/check.h"
#include "tools/cli/standard_streams.h"
#include "tools/launch/arrangement_text.h"
#include "tools/launch/commands.h"
#include "tools/training/job_endpoint.h"
#include "tools/training/progress.h"

namespace elinvar {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

struct CtlOptions {
  std::string job;    // a run directory or an endpoint
  std::string what;   // status, scale, drain, arrange, checkpoint, stop
  std::string which;  // number of workers, a worker by number or name, or entries of an arrangement
  bool json = false;
  bool watch = false;        // repeat the status until the job is over
  bool arrangement = false;  // status: who computes and keeps what
  std::string key;
};

std::string event_line(const Json& event) {
  std::string line =
      "  " + event.at("time").get<std::string>().substr(11, 8) + " " + event.at("event").get<std::string>();
  for (const auto& [key, value] : event.items())
    if (key != "time" && key != "event" && value.is_primitive())
      line += fmt::format(" {}={}", key, value.is_string() ? value.get<std::string>() : value.dump());
  return line + "\n";
}

// The memory that a worker's process uses and the most that it has used of a GPU, if it has said so.
std::string memory_of(const Json& worker) {
  const double bytes = worker.value("resident_bytes", 0.0), on_gpu = worker.value("gpu_peak_bytes", 0.0);
  return (bytes > 0 ? fmt::format(", {:.0f} MiB", bytes * 0x1p-20) : "") +
         (on_gpu > 0 ? fmt::format(", at most {:.0f} MiB on its GPU", on_gpu * 0x1p-20) : "");
}

// The segments that a stage of a pipeline computes, "" without pipeline parallelism.
std::string segments_of(const Json& worker) {
  std::string text;
  for (const Json& run : worker.at("segments"))
    text +=
        fmt::format("{}{} to {}", text.empty() ? "segments " : " and ", run.at(0).get<int>(), run.at(1).get<int>() - 1);
  return text.empty() ? "" : text + ", ";
}

std::string status_text(const Json& s) {
  std::string text = fmt::format("{}: {}, step {} of {}, loss {:.4g}, {}, left {}\n", s.at("run").get<std::string>(),
                                 s.at("phase").get<std::string>(), s.at("step").get<int64_t>(),
                                 s.at("steps").get<int64_t>(), s.at("loss").is_number() ? s["loss"].get<double>() : 0.0,
                                 rate_text(s.at("rate").get<double>(), s.at("unit").get<std::string>()),
                                 duration_text(s.at("seconds_left").get<double>()));
  if (s.contains("holding")) {
    const Json& hold = s["holding"];
    text += "holding: " + hold.at("reason").get<std::string>();
    if (hold.contains("limit"))
      text += fmt::format(", for {}; after {} the run ends (--hold)", duration_text(hold.at("seconds").get<double>()),
                          duration_text(hold.at("limit").get<double>()));
    text += "\n";
  }
  text += fmt::format("generation {}, {} workers\n", s.at("generation").get<int64_t>(), s.at("workers").size());
  for (const Json& w : s.at("workers")) {
    const Json environment = w.at("about").value("environment", Json::object());
    text += fmt::format("  worker {}: {}, {} virtual ranks, step {}, {} threads of {} on {}{}, pid {}\n",
                        w.at("id").get<int>(), w.at("state").get<std::string>(), w.at("virtual_ranks").get<int>(),
                        w.at("step").get<int64_t>(), environment.value("threads", 0), environment.value("isa", "?"),
                        environment.value("host", "?"), memory_of(w), w.at("about").value("pid", 0));
    if (w.contains("at"))
      text += fmt::format("    at {}, {} of {}\n", w["at"].at("what").get<std::string>(),
                          w["at"].at("part").get<int64_t>(), w["at"].at("parts").get<int64_t>());
    if (w.contains("replica"))
      text += fmt::format("    computes {}virtual shards {} to {} in {}model replica {}\n", segments_of(w),
                          w.at("virtual_shards").at(0).get<int>(), w.at("virtual_shards").at(1).get<int>() - 1,
                          w.at("segments").empty() ? "" : fmt::format("stage {} of ", w.at("stage").get<int>()),
                          w["replica"].get<int>());
    if (environment.contains("offload"))
      text += fmt::format("    offload: {}\n", environment["offload"].get<std::string>());
    if (w.contains("buckets_kept"))
      text += fmt::format("    keeps the optimizer's state of {} of {} buckets\n", w["buckets_kept"].get<int>(),
                          w.at("buckets").get<int>());
  }
  const auto way_of = [](const std::string& what, const Json& plane) {
    return plane.at("kind") == "nccl" ? what + " go from GPU to GPU, by NCCL\n"
                                      : fmt::format("{} go through the hosts: {}\n", what, plane.value("reason", ""));
  };
  if (const Json plane = s.value("data_plane", Json::object()); plane.contains("kind")) {
    text += way_of("gradients", plane);
    if (plane.contains("parameters")) text += way_of("parameters after updates", plane["parameters"]);
    if (plane.contains("within")) text += way_of("values within model replicas", plane["within"]);
  }
  const Json& goodput = s.at("goodput");
  text += fmt::format("goodput {:.1f} % of {}\n", 100 * goodput.at("goodput").get<double>(),
                      duration_text(goodput.at("seconds").get<double>()));
  for (const auto& [cause, lost] : goodput.at("lost").items())
    text += fmt::format("  lost to {}: {:.3g} s ({}x)\n", cause, lost.at("seconds").get<double>(),
                        lost.at("times").get<int64_t>());
  if (!s.at("events").empty()) text += "last events (UTC)\n";
  for (const Json& event : s["events"]) text += event_line(event);
  return text;
}

std::string shown(const CtlOptions& command, const Json& status) {
  if (command.json) return status.dump(command.watch ? -1 : 2) + "\n";
  return command.arrangement ? arrangement_text(status) : status_text(status);
}

class RunningJob {
 public:
  explicit RunningJob(const CtlOptions& command) : endpoint_(job_endpoint(command.job)) {
    std::optional<JobKey> key;
    if (!command.key.empty()) key = JobKey::load(command.key);
    transport_ = make_zmq_transport({.listen = listen_towards(endpoint_), .key = key});
    transport_->connect(kJob, endpoint_);
  }

  // Returns the job's answer; none if the job is gone, for the reason in `reason`. A job that ends at once answers
  // before, but its answer may arrive after the end of the connection.
  std::optional<messages::Answer> ask(const CtlOptions& command, std::string& reason) {
    messages::Ctl asked{.endpoint = transport_->endpoint(), .command = command.what};
    int number = 0;
    const char* const end = command.which.data() + command.which.size();
    const auto [stop, error] = std::from_chars(command.which.data(), end, number);
    const bool too_large = error == std::errc::result_out_of_range || number > kMostReceived<int>;
    check(stop != end || !too_large, "{} {}: the number is too large", command.what, command.which);
    check(stop != end || number >= 0, "{} {}: expected a number from 0 on", command.what, command.which);
    if (stop == end) asked.number = number;
    else asked.name = command.which;
    transport_->send(kJob, packet_of({.sender = self_, .payload = std::move(asked)}, /*run=*/0));
    auto deadline = Transport::Clock::now() + std::chrono::seconds(10);
    bool over = false;
    while (true) {
      const Arrival arrival = transport_->wait(deadline);
      if (arrival.what == Arrival::What::timeout && over) return std::nullopt;
      if (arrival.what == Arrival::What::timeout) fail("the job at {} does not answer", endpoint_);
      if (arrival.what == Arrival::What::lost) {
        reason = arrival.reason;
        if (!arrival.accepted) return std::nullopt;
        over = true;
        deadline = std::min(deadline, Transport::Clock::now() + kOnItsWay);
      }
      if (arrival.what != Arrival::What::message) continue;
      const Message message = message_of(arrival.packet);
      if (const auto* answer = message.as<messages::Answer>()) return *answer;
    }
  }
  const std::string& endpoint() const { return endpoint_; }

 private:
  static constexpr PeerId kJob = 1;
  static constexpr std::chrono::seconds kOnItsWay{2};  // more than the coordinator's ZmqOptions::linger
  std::string endpoint_;
  std::unique_ptr<Transport> transport_;
  PeerId self_ = (static_cast<PeerId>(std::random_device{}()) << 32) | 2;
};

// Says what the request leads to.
std::string what_follows(const CtlOptions& command) {
  if (command.what == "drain") return fmt::format("worker {} will leave after this step", command.which);
  if (command.what == "scale") return fmt::format("the job will have {} workers; ctl status shows them", command.which);
  if (command.what == "arrange" && command.which == "auto")
    return "the job will choose its arrangement by itself; ctl status --arrangement shows it";
  if (command.what == "arrange")
    return fmt::format("the job will have the arrangement {}; ctl status shows when", command.which);
  if (command.what == "checkpoint") return "a checkpoint is requested; ctl status shows the event when it is saved";
  return "the job is asked to stop; it ends with a checkpoint once its workers have agreed on a step";
}

// Returns whether `job` is the directory of a run that is not over. Its coordinator may be gone; a worker may then take
// over.
bool is_open(const std::string& job) {
  std::error_code unknown;
  return fs::is_directory(job, unknown) && !result_of(job);
}

// Sends the request to the job's coordinator, or to the one that takes over from it. Returns the status, or null for
// other requests. If the job is gone, returns nothing, and `reason` says why. `job` keeps the connection for the next
// request.
std::optional<Json> ask(std::optional<RunningJob>& job, const CtlOptions& command, std::string& reason) {
  constexpr std::chrono::seconds kPatience{20};  // more than until a worker misses its coordinator, and takes over
  constexpr std::chrono::milliseconds kBetween{250};
  const auto deadline = Transport::Clock::now() + kPatience;
  for (std::string told;;) {
    if (!job) job.emplace(command);
    const std::optional<messages::Answer> answer = job->ask(command, reason);
    if (answer && !answer->starting) {
      if (!answer->error.empty()) fail("{}", answer->error);
      return *answer->status;
    }
    reason = answer ? answer->error : fmt::format("no job at {}: {}", job->endpoint(), reason);
    const std::string news = answer ? reason : "no coordinator answers; if workers are left, one of them takes over";
    if (!answer) job.reset();
    if (!answer && !is_open(command.job)) return std::nullopt;
    if (news != std::exchange(told, news)) say(stderr, "{}: waiting up to {} s\n", news, kPatience.count());
    std::this_thread::sleep_for(kBetween);
    if (Transport::Clock::now() > deadline || (!job && !is_open(command.job))) return std::nullopt;
  }
}

// Redraws the status every second until the job is over.
void watch(std::optional<RunningJob>& job, const CtlOptions& command) {
  std::string reason;
  while (const std::optional<Json> status = ask(job, command, reason)) {
    if (isatty(STDOUT_FILENO)) fmt::print("\033[H\033[J");
    fmt::print("{}", shown(command, *status));
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  if (is_open(command.job)) fail("{}", reason);
}

int ctl(const CtlOptions& command) {
  check(!command.watch || command.what == "status", "--watch goes with status, not with {}", command.what);
  check(!command.arrangement || command.what == "status", "--arrangement goes with status, not with {}", command.what);
  check(command.what != "drain" || !command.which.empty(), "drain WORKER expected: the number or the name of a worker");
  const bool takes_more = command.what == "scale" || command.what == "drain" || command.what == "arrange";
  check(takes_more || command.which.empty(), "{} concerns the whole job: nothing may follow it, got '{}'", command.what,
        command.which);
  const bool digits = !command.which.empty() && command.which.find_first_not_of("0123456789") == std::string::npos;
  check(command.what != "scale" || digits, "scale N expected: the number of workers, got '{}'", command.which);
  if (command.what == "arrange") {
    check(!command.which.empty(), "arrange ENTRIES expected, for example tp=2,zero=1");
    Arrangement arrangement;
    if (command.which != "auto") (void)read_arrangement(command.which, arrangement);
  }
  std::optional<RunningJob> job;
  std::string reason;
  const std::optional<Json> answer = ask(job, command, reason);
  if (!answer) fail("{}", reason);
  if (command.watch) watch(job, command);
  else if (command.json || command.what == "status") fmt::print("{}", shown(command, *answer));
  else fmt::print("{}\n", what_follows(command));
  return 0;
}

}  // namespace

Command add_ctl(CLI::App& program) {
  const auto options = std::make_shared<CtlOptions>();
  CLI::App* app = program.add_subcommand("ctl", "ask a running job for its status, or for a change");
  app->add_option("job", options->job, "its run directory or endpoint")->required();
  app->add_option("what", options->what, "status, scale, drain, arrange, checkpoint or stop")
      ->required()
      ->check(CLI::IsMember({"status", "scale", "drain", "arrange", "checkpoint", "stop"}).description(""));
  app->add_option("which", options->which,
                  "scale: so many workers; drain: the worker's number or name; arrange: how state and work are divided "
                  "from now on, "
                  "entries as of train run --arrangement; those that are not named stay (elastic/ARRANGEMENT.md)");
  app->add_flag("--watch", options->watch, "status: every second, until the job is over");
  app->add_flag("--arrangement", options->arrangement, "status: model replicas, stages, and who keeps what");
  app->add_flag("--json", options->json, "the answer as JSON");
  app->add_option("--key", options->key, "folder of the job's key");
  return {app, [options] { return ctl(*options); }};
}

}  // namespace elinvar
