#include "tools/launch/dry_run.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "tensor/base/check.h"
#include "tensor/heap.h"
#include "tensor/stream.h"
#include "tools/cli/standard_streams.h"
#include "tools/training/network_needs.h"

namespace elinvar {
namespace {

constexpr size_t kShown = 10, kShownWithoutRoom = 5;

using OrderedJson = nlohmann::ordered_json;

struct Predicted {
  MeasuredNetwork network;
  Cluster cluster;
  std::vector<ArrangementEstimate> estimates;
};

// `process`: the bytes of a process before it builds a network.
Predicted predict(const Config& config, const DryRunOptions& options, size_t process) {
  options.device.apply();
  Predicted predicted{
      .network = measure_network(config, static_cast<int64_t>(process)), .cluster = options.cluster, .estimates = {}};
  Cluster& cluster = predicted.cluster;
  if (cluster.memory == 0) cluster.memory = static_cast<int64_t>(machine_memory()) / cluster.workers;
  predicted.estimates = estimate_arrangements(predicted.network.needs, config.run.virtual_ranks, cluster);
  return predicted;
}

std::string gigabytes(int64_t bytes) { return fmt::format("{:.3g} GB", 1e-9 * static_cast<double>(bytes)); }

std::string seconds_text(double seconds) {
  return seconds < 1 ? fmt::format("{:.3g} ms", 1e3 * seconds) : fmt::format("{:.3g} s", seconds);
}

// The one that needs the least memory.
const ArrangementEstimate& smallest(const std::vector<ArrangementEstimate>& estimates) {
  return *std::ranges::min_element(estimates, {}, &ArrangementEstimate::peak);
}

OrderedJson to_json(const ArrangementEstimate& e) {
  const auto& [zero, copies, tp, pp] = e.arrangement;
  return {{"dp", e.dp},
          {"tp", tp},
          {"pp", pp},
          {"zero", zero},
          {"copies", copies},
          {"seconds", e.time.all()},
          {"computing", e.time.computing},
          {"within", e.time.within},
          {"bubble", e.time.bubble},
          {"exchange", e.time.exchange},
          {"update", e.time.update},
          {"peak_bytes", e.peak},
          {"fits", e.fits}};
}

OrderedJson to_json(const Predicted& predicted) {
  OrderedJson json = {{"workers", predicted.cluster.workers},       {"memory_bytes", predicted.cluster.memory},
                      {"latency", predicted.cluster.latency},       {"bandwidth", predicted.cluster.bandwidth},
                      {"parameters", predicted.network.parameters}, {"arrangements", OrderedJson::array()}};
  for (const ArrangementEstimate& e : predicted.estimates) json["arrangements"].push_back(to_json(e));
  return json;
}

ArrangementEstimate read_estimate(const OrderedJson& json) {
  return {
      .arrangement = {.zero = json.at("zero"), .copies = json.at("copies"), .tp = json.at("tp"), .pp = json.at("pp")},
      .dp = json.at("dp"),
      .time = {.computing = json.at("computing"),
               .within = json.at("within"),
               .bubble = json.at("bubble"),
               .exchange = json.at("exchange"),
               .update = json.at("update")},
      .peak = json.at("peak_bytes"),
      .fits = json.at("fits")};
}

void print_row(const ArrangementEstimate& e) {
  const auto percent = [&](double part) { return fmt::format("{:.0f} %", 100 * part / e.time.all()); };
  fmt::print("{:<34} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}  {}\n", e.text(), seconds_text(e.time.all()),
             percent(e.time.computing), percent(e.time.within), percent(e.time.bubble), percent(e.time.exchange),
             percent(e.time.update), gigabytes(e.peak), e.fits ? e.bound() : "does not fit");
}

void print(const Predicted& predicted, const Config& config) {
  const Cluster& cluster = predicted.cluster;
  const MeasuredNetwork& network = predicted.network;
  const std::vector<ArrangementEstimate>& estimates = predicted.estimates;
  fmt::print("model        {}: {} parameters, {} segments, {} virtual shard{}\n", config.model.kind, network.parameters,
             network.needs.segments.size(), network.needs.shards, network.needs.shards == 1 ? "" : "s");
  fmt::print("measured     {} of the {} samples of a virtual rank, on {} thread{}\n", network.measured, network.samples,
             cpu_stream().threads(), cpu_stream().threads() == 1 ? "" : "s");
  fmt::print("workers      {} of {}, {} a message, {} a second\n\n", cluster.workers, gigabytes(cluster.memory),
             seconds_text(cluster.latency), gigabytes(static_cast<int64_t>(cluster.bandwidth)));
  fmt::print("{:<34} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}  {}\n", "arrangement", "step", "computing", "within",
             "bubble", "exchange", "update", "memory", "bound by");
  const auto without_room = std::ranges::find(estimates, false, &ArrangementEstimate::fits);
  const auto fitting = static_cast<size_t>(without_room - estimates.begin());
  const size_t others = estimates.size() - fitting;
  for (size_t i = 0; i < std::min(fitting, kShown); ++i) print_row(estimates[i]);
  for (size_t i = 0; i < std::min(others, kShownWithoutRoom); ++i) print_row(estimates[fitting + i]);
  fmt::print("\n{} of {} arrangements fit", fitting, estimates.size());
  if (fitting == 0)
    fmt::print("; {} needs the least memory, {}", smallest(estimates).text(), gigabytes(smallest(estimates).peak));
  fmt::print("\n");
}

std::string read_all(int file) {
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t count = read(file, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(buffer, static_cast<size_t>(count));
  }
}

// Ends this process, which is a child, after it has written what `work` returns, or what it throws.
[[noreturn]] void answer(int file, const std::function<OrderedJson()>& work) {
  OrderedJson answer;
  try {
    answer = work();
  } catch (const UsageError& error) {
    answer = {{"usage", error.what()}};
  } catch (const std::exception& error) {
    answer = {{"failure", error.what()}};
  }
  const std::string text = answer.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  for (size_t written = 0; written < text.size();) {
    const ssize_t count = write(file, text.data() + written, text.size() - written);
    if (count < 0 && errno != EINTR) break;
    written += static_cast<size_t>(std::max<ssize_t>(count, 0));
  }
  _exit(0);
}

// Runs `work` in a child process, whose memory is gone afterwards.
OrderedJson in_child(const std::function<OrderedJson()>& work) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) fail("no pipe to a child process: {}", std::strerror(errno));
  const pid_t child = fork();
  if (child < 0) fail("cannot start a child process: {}", std::strerror(errno));
  if (child == 0) {
    close(pipe_ends[0]);
    answer(pipe_ends[1], work);
  }
  close(pipe_ends[1]);
  const std::string text = read_all(pipe_ends[0]);
  close(pipe_ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) fail("the process that measures the network was killed by signal {}", WTERMSIG(status));
  OrderedJson answer = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (answer.is_discarded()) fail("the process that measures the network ended without an answer");
  if (answer.contains("usage")) throw UsageError(answer["usage"]);
  if (answer.contains("failure")) throw Failure(answer["failure"]);
  return answer;
}

}  // namespace

int dry_run(const Config& config, const DryRunOptions& options) {
  const Predicted predicted = predict(config, options, resident_memory());
  if (options.json) fmt::print("{}\n", to_json(predicted).dump());
  else print(predicted, config);
  return predicted.estimates.front().fits ? 0 : 1;
}

ArrangementEstimate choose_arrangement(const Config& config, const DryRunOptions& options) {
  const size_t process = resident_memory();
  const OrderedJson json = in_child([&] { return to_json(predict(config, options, process)); });
  std::vector<ArrangementEstimate> estimates;
  for (const OrderedJson& estimate : json.at("arrangements")) estimates.push_back(read_estimate(estimate));
  const ArrangementEstimate& best = estimates.front();
  const int64_t memory = json.at("memory_bytes");
  check(best.fits, "--arrangement auto: none fits workers of {}; {} would need the least, {} on each",
        gigabytes(memory), smallest(estimates).text(), gigabytes(smallest(estimates).peak));
  say(stdout, "arrangement {}: the fastest of {} that fit, {} a step and {} of {} predicted, bound by {}\n",
      best.text(), std::ranges::count(estimates, true, &ArrangementEstimate::fits), seconds_text(best.time.all()),
      gigabytes(best.peak), gigabytes(memory), best.bound());
  return best;
}

}  // namespace elinvar
