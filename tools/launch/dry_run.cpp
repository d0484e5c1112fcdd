#include "tools/launch/dry_run.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/fields.h"
#include "tensor/base/check.h"
#include "tensor/heap.h"
#include "tools/cli/standard_streams.h"
#include "tools/launch/companions.h"
#include "tools/launch/link_measurement.h"
#include "tools/training/network_needs.h"

namespace elinvar {
namespace {

constexpr size_t kShown = 10, kShownWithoutRoom = 5;

using OrderedJson = nlohmann::ordered_json;

std::string gigabytes(double bytes) { return fmt::format("{:.3g} GB", 1e-9 * bytes); }

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

// How many workers this machine has processors for, at least one. Further ones are taken to be on others like it.
int workers_here(const DryRunOptions& options) {
  return std::clamp(usable_threads() / options.device.threads, 1, options.workers);
}

// Returns how much longer passes take for a second of another thread's work on this machine: not at all if each worker
// has a processor besides those of its threads.
double taken_by_other_threads(const DryRunOptions& options) {
  const bool idle = workers_here(options) * (options.device.threads + 1) <= usable_threads();
  return idle ? 0 : 1.0 / options.device.threads;
}

Cluster cluster_of(const DryRunOptions& options) {
  MeasuredLink link{.latency = 0, .bandwidth = 1, .processor = 0};
  if (options.workers > 1) link = measure_link(options.transport);
  Cluster cluster{.workers = options.workers,
                  .latency = options.latency.value_or(link.latency),
                  .bandwidth = options.bandwidth.value_or(link.bandwidth),
                  .processor = link.processor * taken_by_other_threads(options),
                  .memory = options.memory,
                  .copies = options.copies};
  if (cluster.memory == 0) cluster.memory = static_cast<int64_t>(machine_memory()) / cluster.workers;
  return cluster;
}

// Returns forecasts for up to twice as many workers. They are predicted as if all had those of the measured job beside
// them.
ArrangementForecasts forecasts_of(const NetworkNeeds& needs, int virtual_ranks, Cluster cluster) {
  const auto state = static_cast<double>(state_bytes(needs.memory));
  ArrangementForecasts forecasts{.of_workers = {}, .change = state / cluster.bandwidth};
  const int most = std::min(2 * cluster.workers, kMostParallel);
  for (cluster.workers = 1; cluster.workers <= most; ++cluster.workers) {
    std::vector<ArrangementForecast>& all = forecasts.of_workers.emplace_back();
    for (const ArrangementEstimate& e : estimate_arrangements(needs, virtual_ranks, cluster))
      all.push_back({simplified(e.arrangement, cluster.workers), e.time.all(), e.fits});
  }
  return forecasts;
}

// The answer of a child process: predictions, and what they are made from.
OrderedJson predict_in_child(const Config& config, const DryRunOptions& options, const Cluster& cluster, bool forecasts,
                             int64_t process, Companions& companions) {
  options.device.apply();
  MeasuredNetwork network =
      measure_network(config, {.process = process,
                               .offload = parse_offload(options.device.offload, Device{}),
                               .greatest = [&](double value) { return companions.greatest(value); }});
  if (companions.index() > 0) return {};
  network.needs.batch *= taken_by_other_threads(options);
  OrderedJson json = {{"parameters", network.parameters}, {"segments", network.needs.segments.size()},
                      {"shards", network.needs.shards},   {"samples", network.samples},
                      {"measured", network.measured},     {"arrangements", OrderedJson::array()}};
  for (const ArrangementEstimate& e : estimate_arrangements(network.needs, config.run.virtual_ranks, cluster))
    json["arrangements"].push_back(to_json(e));
  if (forecasts) json["forecasts"] = write_fields(forecasts_of(network.needs, config.run.virtual_ranks, cluster));
  return json;
}

OrderedJson predict(const Config& config, const DryRunOptions& options, bool forecasts) {
  const auto process = static_cast<int64_t>(resident_memory());
  const Cluster cluster = cluster_of(options);
  const int processes = workers_here(options);
  OrderedJson json = {{"workers", cluster.workers},     {"memory_bytes", cluster.memory},
                      {"latency", cluster.latency},     {"bandwidth", cluster.bandwidth},
                      {"processor", cluster.processor}, {"threads", options.device.threads},
                      {"processes", processes}};
  json.update(in_children(processes, [&](Companions& companions) {
                return predict_in_child(config, options, cluster, forecasts, process, companions);
              }).front());
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
             percent(e.time.update), gigabytes(static_cast<double>(e.peak)), e.fits ? e.bound() : "does not fit");
}

std::vector<ArrangementEstimate> estimates_of(const OrderedJson& predicted) {
  std::vector<ArrangementEstimate> estimates;
  for (const OrderedJson& estimate : predicted.at("arrangements")) estimates.push_back(read_estimate(estimate));
  return estimates;
}

std::string counted(int64_t count, const std::string& thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

std::string links_text(const OrderedJson& predicted, const DryRunOptions& options) {
  const auto source = [](const std::optional<double>& given) { return given ? "given" : "measured"; };
  return fmt::format("{} a message ({}), {} a second each way ({}), {} of the passes' time a GB",
                     seconds_text(predicted.at("latency")), source(options.latency),
                     gigabytes(predicted.at("bandwidth").get<double>()), source(options.bandwidth),
                     seconds_text(1e9 * predicted.at("processor").get<double>()));
}

void print(const OrderedJson& predicted, const Config& config, const DryRunOptions& options) {
  const std::vector<ArrangementEstimate> estimates = estimates_of(predicted);
  const auto number = [&](const char* name) { return predicted.at(name).get<int64_t>(); };
  fmt::print("model        {}: {} parameters, {}, {}\n", config.model.kind, number("parameters"),
             counted(number("segments"), "segment"), counted(number("shards"), "virtual shard"));
  fmt::print("measured     {} of the {} samples of a virtual rank, on {}, in {} at the same time\n", number("measured"),
             number("samples"), counted(number("threads"), "thread"),
             number("processes") == 1 ? "1 process" : fmt::format("{} processes", number("processes")));
  if (options.workers > 1) fmt::print("links        {}\n", links_text(predicted, options));
  fmt::print("workers      {} of {}\n\n", number("workers"), gigabytes(predicted.at("memory_bytes").get<double>()));
  fmt::print("{:<34} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}  {}\n", "arrangement", "step", "computing", "within",
             "bubble", "exchange", "update", "memory", "bound by");
  const auto without_room = std::ranges::find(estimates, false, &ArrangementEstimate::fits);
  const auto fitting = static_cast<size_t>(without_room - estimates.begin());
  const size_t others = estimates.size() - fitting;
  for (size_t i = 0; i < std::min(fitting, kShown); ++i) print_row(estimates[i]);
  for (size_t i = 0; i < std::min(others, kShownWithoutRoom); ++i) print_row(estimates[fitting + i]);
  fmt::print("\n{} of {} arrangements fit", fitting, estimates.size());
  if (fitting == 0)
    fmt::print("; {} needs the least memory, {}", smallest(estimates).text(),
               gigabytes(static_cast<double>(smallest(estimates).peak)));
  fmt::print("\n");
}

}  // namespace

int dry_run(const Config& config, const DryRunOptions& options) {
  const OrderedJson predicted = predict(config, options, /*forecasts=*/false);
  if (options.json) fmt::print("{}\n", predicted.dump());
  else print(predicted, config, options);
  return predicted.at("arrangements").at(0).at("fits") ? 0 : 1;
}

ChosenArrangement choose_arrangement(const Config& config, const DryRunOptions& options) {
  const OrderedJson predicted = predict(config, options, /*forecasts=*/true);
  const std::vector<ArrangementEstimate> estimates = estimates_of(predicted);
  const ArrangementEstimate& best = estimates.front();
  const double memory = predicted.at("memory_bytes");
  const auto bytes = [](const ArrangementEstimate& e) { return gigabytes(static_cast<double>(e.peak)); };
  check(best.fits, "--arrangement auto: none fits workers of {}; {} would need the least, {} on each",
        gigabytes(memory), smallest(estimates).text(), bytes(smallest(estimates)));
  say(stdout, "arrangement {}: the fastest of {} that fit, {} a step and {} of {} predicted, bound by {}\n",
      best.text(), std::ranges::count(estimates, true, &ArrangementEstimate::fits), seconds_text(best.time.all()),
      bytes(best), gigabytes(memory), best.bound());
  if (options.workers > 1) say(stdout, "links: {}\n", links_text(predicted, options));
  return {best.arrangement, read_fields<ArrangementForecasts>(predicted.at("forecasts"))};
}

}  // namespace elinvar
