#include "tools/launch/dry_run.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/fields.h"
#include "tensor/base/check.h"
#include "tensor/device_description.h"
#include "tensor/heap.h"
#include "tools/cli/standard_streams.h"
#include "tools/launch/companions.h"
#include "tools/launch/link_measurement.h"
#include "tools/training/file_pages.h"
#include "tools/training/gpu_assignment.h"
#include "tools/training/gpu_needs.h"
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

OrderedJson to_json(const ArrangementEstimate& e, bool timed) {
  const auto& [zero, copies, tp, pp] = e.arrangement;
  OrderedJson json = {{"dp", e.dp}, {"tp", tp}, {"pp", pp}, {"zero", zero}, {"copies", copies}};
  if (timed)
    json.update({{"seconds", e.time.all()},
                 {"computing", e.time.computing},
                 {"within", e.time.within},
                 {"bubble", e.time.bubble},
                 {"exchange", e.time.exchange},
                 {"update", e.time.update}});
  json["peak_bytes"] = e.peak;
  if (e.host > 0) json["host_bytes"] = e.host;
  json["fits"] = e.fits;
  return json;
}

// The device of each worker.
struct WorkerDevice {
  Device device = {};       // that measures
  std::string absent = {};  // why the workers' GPUs are not here and the CPU measures instead, or ""
  std::string model = {};   // of a GPU
  int64_t memory = 0;       // .. and its bytes; 0: not known
  int sharing = 1;          // .. and the workers that have it together
  bool gpu() const { return device != Device{} || !absent.empty(); }
};

// `here`: the job will run here, so its GPUs must be here. A process that starts others must not use CUDA before, so a
// child asks it.
WorkerDevice worker_device(const DryRunOptions& options, bool here) {
  const std::string& name = options.device.device;
  const OrderedJson found = in_children(1, [&](Companions&) -> OrderedJson {
                              const int gpus = gpus_here();
                              if (!here && name.starts_with("cuda") && gpus == 0) {
                                check_device_name(name);
                                return {{"absent", why_no_gpu()}};
                              }
                              const Device device = parse_device(name);
                              const DeviceDescription about = describe(device);
                              return {{"kind", device.kind},
                                      {"index", device.index},
                                      {"model", about.model},
                                      {"memory", about.memory},
                                      {"gpus", gpus}};
                            }).front();
  if (found.contains("absent"))
    return {.absent = found["absent"],
            .sharing = workers_sharing(name, {DeviceKind::cuda}, options.workers, /*gpus=*/0)};
  WorkerDevice worker{.device = {found.at("kind").get<DeviceKind>(), found.at("index").get<int8_t>()},
                      .model = found.at("model"),
                      .memory = found.at("memory")};
  worker.sharing = workers_sharing(name, worker.device, options.workers, found.at("gpus"));
  worker.memory /= worker.sharing;
  return worker;
}

// A job as it is planned.
struct PlannedJob {
  DryRunOptions options;
  WorkerDevice worker;

  bool timed() const { return worker.absent.empty(); }
  // Returns the number of workers that this machine has processors for, at least one. Further ones are taken to be on
  // others like it. Workers with GPUs disturb each other little.
  int workers_here() const {
    return worker.gpu() ? 1 : std::clamp(usable_threads() / options.device.threads, 1, options.workers);
  }
  // Returns how much longer passes take for a second of another thread's work on this machine: not at all if each
  // worker has a processor besides those of its threads, or a GPU.
  double taken_by_other_threads() const {
    const bool idle = worker.gpu() || workers_here() * (options.device.threads + 1) <= usable_threads();
    return idle ? 0 : 1.0 / options.device.threads;
  }
};

Cluster cluster_of(const PlannedJob& job) {
  const DryRunOptions& options = job.options;
  MeasuredLink link{.latency = 0, .bandwidth = 1, .processor = 0};
  if (options.workers > 1 && job.timed()) link = measure_link(options.transport);
  Cluster cluster{.workers = options.workers,
                  .latency = options.latency.value_or(link.latency),
                  .bandwidth = options.bandwidth.value_or(link.bandwidth),
                  .processor = link.processor * job.taken_by_other_threads(),
                  .memory = options.memory / job.worker.sharing,
                  .copies = options.copies};
  if (cluster.memory == 0 && job.worker.gpu()) cluster.memory = job.worker.memory;
  else if (cluster.memory == 0) cluster.memory = static_cast<int64_t>(machine_memory()) / cluster.workers;
  check(cluster.memory > 0, "--device {}: how much memory a worker's GPU has is not known here; --memory 80GB says it",
        options.device.device);
  return cluster;
}

NeedsOptions needs_options(const PlannedJob& job, const Config& config) {
  const WorkerDevice& worker = job.worker;
  const Device computes = worker.absent.empty() ? worker.device : Device{DeviceKind::cuda};
  NeedsOptions needs{.offload = parse_offload(job.options.device.offload, computes), .device = worker.device};
  check(worker.absent.empty() || !needs.offload.inputs,
        "--offload {}: what the inputs of blocks leave on a GPU is measured on one, and there is none here ({})",
        job.options.device.offload, worker.absent);
  if (worker.gpu()) needs.gpu = gpu_needs(config, computes, worker.sharing);
  return needs;
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

// The answer of a child process: predictions, and what they are made from. `process`: the bytes of the parent, with
// those of `pages`.
OrderedJson predict_in_child(const Config& config, const PlannedJob& job, const Cluster& cluster, bool forecasts,
                             int64_t process, const FilePages& pages, Companions& companions) {
  pages.touch();
  job.options.device.apply();
  NeedsOptions options = needs_options(job, config);
  options.process = process;
  options.greatest = [&](double value) { return companions.greatest(value); };
  MeasuredNetwork network = measure_network(config, options);
  if (companions.index() > 0) return {};
  network.needs.batch *= job.taken_by_other_threads();
  OrderedJson json = {{"parameters", network.parameters}, {"segments", network.needs.segments.size()},
                      {"shards", network.needs.shards},   {"samples", network.samples},
                      {"measured", network.measured},     {"arrangements", OrderedJson::array()}};
  for (const ArrangementEstimate& e : estimate_arrangements(network.needs, config.run.virtual_ranks, cluster))
    json["arrangements"].push_back(to_json(e, network.needs.timed));
  if (forecasts) json["forecasts"] = write_fields(forecasts_of(network.needs, config.run.virtual_ranks, cluster));
  return json;
}

OrderedJson predict(const Config& config, const PlannedJob& job, bool forecasts) {
  const auto process = static_cast<int64_t>(resident_memory());
  const FilePages pages;
  const Cluster cluster = cluster_of(job);
  const int processes = job.workers_here();
  OrderedJson json = {{"workers", cluster.workers}, {"memory_bytes", cluster.memory}};
  if (job.timed())
    json.update({{"latency", cluster.latency}, {"bandwidth", cluster.bandwidth}, {"processor", cluster.processor}});
  json.update({{"threads", job.options.device.threads}, {"processes", processes}});
  if (job.worker.gpu()) json["gpu"] = job.timed() ? job.worker.model : "absent: " + job.worker.absent;
  json.update(in_children(processes, [&](Companions& companions) {
                return predict_in_child(config, job, cluster, forecasts, process, pages, companions);
              }).front());
  return json;
}

ArrangementEstimate read_estimate(const OrderedJson& json) {
  const auto seconds = [&](const char* part) { return json.value(part, 0.0); };
  return {
      .arrangement = {.zero = json.at("zero"), .copies = json.at("copies"), .tp = json.at("tp"), .pp = json.at("pp")},
      .dp = json.at("dp"),
      .time = {.computing = seconds("computing"),
               .within = seconds("within"),
               .bubble = seconds("bubble"),
               .exchange = seconds("exchange"),
               .update = seconds("update")},
      .peak = json.at("peak_bytes"),
      .host = json.value("host_bytes", int64_t{0}),
      .fits = json.at("fits")};
}

// The table of arrangements: without the columns of times if they are not known, and with the memory of hosts beside
// that of GPUs.
struct Table {
  bool timed, gpus;

  void print_head() const {
    fmt::print("{:<34}", "arrangement");
    if (timed)
      for (const char* name : {"step", "computing", "within", "bubble", "exchange", "update"})
        fmt::print(" {:>9}", name);
    fmt::print(" {:>9}", gpus ? "GPU" : "memory");
    if (gpus) fmt::print(" {:>9}", "host");
    fmt::print("{}\n", timed ? "  bound by" : "");
  }

  void print_row(const ArrangementEstimate& e) const {
    const auto bytes = [](int64_t n) { return fmt::format(" {:>9}", gigabytes(static_cast<double>(n))); };
    fmt::print("{:<34}", e.text());
    if (timed) {
      fmt::print(" {:>9}", seconds_text(e.time.all()));
      for (const double part : {e.time.computing, e.time.within, e.time.bubble, e.time.exchange, e.time.update})
        fmt::print(" {:>9}", fmt::format("{:.0f} %", 100 * part / e.time.all()));
    }
    fmt::print("{}{}  {}\n", bytes(e.peak), gpus ? bytes(e.host) : "",
               !e.fits ? "does not fit"
               : timed ? e.bound()
                       : "fits");
  }
};

std::vector<ArrangementEstimate> estimates_of(const OrderedJson& predicted) {
  std::vector<ArrangementEstimate> estimates;
  for (const OrderedJson& estimate : predicted.at("arrangements")) estimates.push_back(read_estimate(estimate));
  return estimates;
}

std::string counted(int64_t count, const std::string& thing) {
  return fmt::format("{} {}{}", count, thing, count == 1 ? "" : "s");
}

std::string links_text(const OrderedJson& predicted, const PlannedJob& job) {
  const DryRunOptions& options = job.options;
  const auto source = [&](const std::optional<double>& given) {
    if (given) return "given";
    return job.worker.gpu() ? "measured between processes" : "measured";
  };
  const std::string of_passes =
      job.worker.gpu() ? "none of the passes' time"
                       : seconds_text(1e9 * predicted.at("processor").get<double>()) + " of the passes' time a GB";
  return fmt::format("{} a message ({}), {} a second each way ({}), {}", seconds_text(predicted.at("latency")),
                     source(options.latency), gigabytes(predicted.at("bandwidth").get<double>()),
                     source(options.bandwidth), of_passes);
}

std::string device_text(const OrderedJson& predicted, const PlannedJob& job) {
  const auto number = [&](const char* name) { return predicted.at(name).get<int64_t>(); };
  const std::string threads = counted(number("threads"), "thread");
  if (!job.timed()) return fmt::format("on {} of the CPU: no GPU is here ({})", threads, job.worker.absent);
  if (job.worker.gpu()) return fmt::format("on {}", job.worker.model);
  return fmt::format("on {}, in {} at the same time", threads,
                     number("processes") == 1 ? "1 process" : fmt::format("{} processes", number("processes")));
}

std::string room_text(const OrderedJson& predicted, const PlannedJob& job) {
  const std::string bytes = gigabytes(predicted.at("memory_bytes").get<double>());
  if (!job.worker.gpu()) return bytes;
  if (job.worker.sharing > 1) return fmt::format("{} each of a GPU that {} share", bytes, job.worker.sharing);
  return fmt::format("{} on a GPU of its own each", bytes);
}

void print(const OrderedJson& predicted, const Config& config, const PlannedJob& job) {
  const std::vector<ArrangementEstimate> estimates = estimates_of(predicted);
  const auto number = [&](const char* name) { return predicted.at(name).get<int64_t>(); };
  fmt::print("model        {}: {} parameters, {}, {}\n", config.model.kind, number("parameters"),
             counted(number("segments"), "segment"), counted(number("shards"), "virtual shard"));
  fmt::print("measured     {} of the {} samples of a virtual rank, {}\n", number("measured"), number("samples"),
             device_text(predicted, job));
  if (!job.timed()) fmt::print("times        not known: they are measured where workers have such devices\n");
  else if (job.options.workers > 1) fmt::print("links        {}\n", links_text(predicted, job));
  fmt::print("workers      {} of {}\n\n", number("workers"), room_text(predicted, job));
  const Table table{.timed = job.timed(), .gpus = job.worker.gpu()};
  table.print_head();
  const auto without_room = std::ranges::find(estimates, false, &ArrangementEstimate::fits);
  const auto fitting = static_cast<size_t>(without_room - estimates.begin());
  const size_t others = estimates.size() - fitting;
  for (size_t i = 0; i < std::min(fitting, kShown); ++i) table.print_row(estimates[i]);
  for (size_t i = 0; i < std::min(others, kShownWithoutRoom); ++i) table.print_row(estimates[fitting + i]);
  fmt::print("\n{} of {} arrangements fit", fitting, estimates.size());
  if (fitting == 0)
    fmt::print("; {} needs the least memory, {}", smallest(estimates).text(),
               gigabytes(static_cast<double>(smallest(estimates).peak)));
  fmt::print("\n");
}

}  // namespace

int dry_run(const Config& config, const DryRunOptions& options) {
  const PlannedJob job{options, worker_device(options, /*here=*/false)};
  const OrderedJson predicted = predict(config, job, /*forecasts=*/false);
  if (options.json) fmt::print("{}\n", predicted.dump());
  else print(predicted, config, job);
  return predicted.at("arrangements").at(0).at("fits") ? 0 : 1;
}

ChosenArrangement choose_arrangement(const Config& config, const DryRunOptions& options) {
  const PlannedJob job{options, worker_device(options, /*here=*/true)};
  const OrderedJson predicted = predict(config, job, /*forecasts=*/true);
  const std::vector<ArrangementEstimate> estimates = estimates_of(predicted);
  const ArrangementEstimate& best = estimates.front();
  const double memory = predicted.at("memory_bytes");
  const auto bytes = [](const ArrangementEstimate& e) { return gigabytes(static_cast<double>(e.peak)); };
  check(best.fits, "--arrangement auto: none fits workers of {}; {} would need the least, {} on each",
        gigabytes(memory), smallest(estimates).text(), bytes(smallest(estimates)));
  say(stdout, "arrangement {}: the fastest of {} that fit, {} a step and {} of {} predicted, bound by {}\n",
      best.text(), std::ranges::count(estimates, true, &ArrangementEstimate::fits), seconds_text(best.time.all()),
      bytes(best), gigabytes(memory), best.bound());
  if (options.workers > 1) say(stdout, "links: {}\n", links_text(predicted, job));
  return {best.arrangement, read_fields<ArrangementForecasts>(predicted.at("forecasts"))};
}

}  // namespace elinvar
