// `check`: says what a run of a configuration would do, and refuses what the run would refuse, before anything starts.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>

#include "elastic/step/arrangement.h"
#include "elastic/protocol/plan.h"
#include "tensor/allocator.h"
#include "nn/update_rule.h"
#include "tensor/base/check.h"
#include "tensor/heap.h"
#include "tools/cli/device_options.h"
#include "tools/train/commands.h"
#include "tools/training/arrangement_estimate.h"
#include "tools/training/memory_forecast.h"
#include "tools/training/memory_growth.h"
#include "tools/training/parameter_shards.h"
#include "tools/training/progress.h"
#include "tools/training/table_needs.h"
#include "tools/training/training.h"

namespace elinvar {
namespace {

struct CheckOptions {
  std::string config;
  std::vector<std::string> overrides;
  int workers = 1;
  std::string arrangement;
  int copies = Arrangement().copies;
  DeviceOptions device;
};

std::string memory_text(double bytes) {
  return bytes >= 0x1p30 ? fmt::format("{:.1f} GiB", bytes * 0x1p-30) : fmt::format("{:.1f} MiB", bytes * 0x1p-20);
}

// Returns the places of workers that are equally fast.
std::vector<ReplicaPlace> places_in(Training& training, const Arrangement& arrangement, int workers) {
  if (arrangement.pp > 1) training.measure_segments(arrangement);
  return deal_replicas(
      limits_of(arrangement, static_cast<int>(training.config().virtual_shards()), training.segment_costs()),
      std::vector<double>(static_cast<size_t>(workers), 1.0));
}

// Prints which virtual ranks and virtual shards each worker computes. Returns the numbers of virtual ranks.
std::vector<int> print_workers(const Training& training, const std::vector<ReplicaPlace>& places) {
  const int vranks = training.config().run.virtual_ranks, workers = static_cast<int>(places.size());
  const int replicas = places.back().replica + 1;
  const auto shards = static_cast<int>(training.config().virtual_shards());
  std::vector<int> counts;
  const auto shares =
      shares_of_members(places, assign(vranks, std::vector<double>(static_cast<size_t>(replicas), 1.0)));
  for (int w = 0; w < workers; ++w) {
    const std::string name = fmt::format("worker {}", w + 1);
    const std::vector<Interval>& share = shares[static_cast<size_t>(w)];
    int64_t samples = 0;
    counts.push_back(total(share));
    for (const Interval& interval : share)
      for (int v = interval.begin; v < interval.end; ++v) samples += training.loader.samples(0, v);
    if (share.empty()) {
      fmt::print("{:<12} nothing: set run.virtual_ranks to at least {}, which changes the result\n", name, replicas);
      continue;
    }
    const Interval& first = share.front();
    const auto numbers = [](const Interval& i) {
      return i.size() > 1 ? fmt::format("{} to {}", i.begin, i.end - 1) : fmt::format("{}", i.begin);
    };
    const auto range = [&](const Interval& i) { return (i.size() > 1 ? "s " : " ") + numbers(i); };
    const ReplicaPlace& place = places[static_cast<size_t>(w)];
    std::string part;
    for (const Interval& run : place.segments) part += (part.empty() ? ", segments " : " and ") + numbers(run);
    if (replicas < workers && place.shards.size() < shards)
      part += fmt::format(", virtual shard{} of {}", range(place.shards), shards);
    fmt::print("{:<12} virtual rank{} of {}, {} samples a step{}\n", name, range(first), vranks, samples, part);
  }
  return counts;
}

// Prints what each worker needs; workers that need the same are one line.
void print_memory(const std::vector<MemoryForecast>& workers) {
  for (size_t first = 0, next = 0; first < workers.size(); first = next) {
    const MemoryForecast& w = workers[first];
    while (next < workers.size() &&
           memory_text(static_cast<double>(workers[next].peak)) == memory_text(static_cast<double>(w.peak)))
      ++next;
    const auto text = [](int64_t bytes) { return memory_text(static_cast<double>(bytes)); };
    fmt::print(
        "memory       {} on {}: {} of parameters, {} of the optimizer's state{}{}, {} for checkpoints, and a step\n",
        text(w.peak),
        next - first == 1 ? fmt::format("worker {}", first + 1)
                          : fmt::format("each of workers {} to {}", first + 1, next),
        text(w.parameters), text(w.optimizer), w.offloaded > 0 ? " in a file, not counted" : "",
        w.average > 0 ? fmt::format(", {} of averages", text(w.average)) : "", text(w.snapshot));
  }
}

// The first gradient of virtual rank 0, as a worker computes it.
struct Measured {
  int64_t bytes = 0;  // at the peak, besides the `held` state
  double seconds = 0, loss = 0;
};

// The needs of a stage of a pipeline: for rank gradients between their passes, of which there are as many as there are
// stages from it on, and for the gradients of one. Parameters that a segment fetches (ZeRO-3) were in memory
// as it was measured.
Measured of_stage(const Training& training, const ReplicaPlace& place, int stages, int virtual_ranks) {
  NetworkNeeds needs;
  needs.shards = static_cast<int>(training.config().virtual_shards());
  set_parameters(needs.memory, training.setup.network->parameters, training.config().optimizer);
  needs.memory.parts = *training.member({.pp = stages}).parts;
  Measured stage;
  for (size_t i = 0; i < training.segments().size(); ++i) {
    const MeasuredSegment& segment = training.segments()[i];
    SegmentNeeds& needed = needs.segments.emplace_back();
    needed.held.common = static_cast<double>(segment.held);
    needed.more.common = static_cast<double>(segment.peak - segment.held);
    if (contains(place.segments, static_cast<int>(i))) stage.seconds += segment.seconds;
  }
  const int under_way = std::clamp(virtual_ranks, 1, stages - place.stage);
  stage.bytes = rank_gradient_bytes(needs, place, under_way, /*zero=*/0);
  return stage;
}

// Workers that compute equally many virtual shards need the same.
std::vector<Measured> measure(Training& training, const std::vector<ReplicaPlace>& places,
                              const std::vector<int>& virtual_ranks, int64_t held) {
  training.touch(training.loader.cursor(0));
  const Batch batch = training.loader.batch(0, 0);
  std::map<int, Measured> by_shards;
  std::vector<Measured> all;
  for (size_t w = 0; w < places.size(); ++w) {
    const ReplicaPlace& place = places[w];
    if (!place.segments.empty()) {
      int stages = 1;
      for (const ReplicaPlace& other : places)
        if (other.replica == place.replica) stages = std::max(stages, other.stage + 1);
      all.push_back(of_stage(training, place, stages, virtual_ranks[w]));
      continue;
    }
    const auto [found, fresh] = by_shards.try_emplace(place.shards.size());
    if (fresh) {
      HostAllocator::instance().reset_peak();
      const auto began = std::chrono::steady_clock::now();
      const bool whole = places.size() == static_cast<size_t>(places.back().replica) + 1;
      const RankGradient gradient =
          whole ? training.rank_gradient(batch, 0, 0)
                : training.partial_gradient(batch, 0, 0, {place.shards.begin, place.shards.end});
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
      found->second = {.bytes = static_cast<int64_t>(HostAllocator::instance().stats().peak_in_use) - held,
                       .seconds = seconds.count(),
                       .loss = gradient.facts.loss_sum / static_cast<double>(gradient.facts.count)};
    }
    all.push_back(found->second);
  }
  return all;
}

int64_t tensors_in_use() { return static_cast<int64_t>(HostAllocator::instance().stats().in_use); }

int64_t bytes_of(const StateDict& tensors) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : tensors) bytes += tensor.bytes();
  return bytes;
}

// Returns the needs of workers between steps, without the program itself.
MemoryNeeds needs_of(const Training& training, const Arrangement& arrangement, const Offload& offload) {
  const TrainingSetup& setup = training.setup;
  MemoryNeeds needs{.parameters = {},
                    .parts = training.member(arrangement).parts,
                    .offload = offload,
                    .average = setup.average != nullptr,
                    .spare = kHeapSpare,
                    .checkpoints = setup.config.run.checkpoint_every > 0};
  set_parameters(needs, setup.network->parameters, setup.config.optimizer);
  for (const Network* network : {setup.network.get(), setup.average.get()})
    if (network != nullptr) needs.other_state += bytes_of(network->parameters.buffer_state());
  if (const auto rule = make_update_rule(setup.config.optimizer)) {
    needs.slots = static_cast<int>(rule->slots().size());
  } else {  // of a registered kind, whose state is whole on every worker
    needs.other_state += bytes_of(setup.optimizer->state());
  }
  return needs;
}

// The bytes of tensors that this process holds between steps, of which the forecast counts a worker's part.
int64_t held_bytes(const TrainingSetup& setup, const MemoryNeeds& needs) {
  int64_t held = bytes_of(setup.state());
  if (setup.optimizer && setup.offload.to == Offload::To::file) held -= bytes_of(setup.optimizer->state());
  for (const auto& [i, table] : needs.tables) held += gradient_bytes(needs, static_cast<size_t>(i));  // rows' values
  return held;
}

int check_run(const CheckOptions& command) {
  auto process = static_cast<int64_t>(resident_memory());
  Config config = read_config(command.config, command.overrides);
  const Device device = parse_device(command.device.device);
  Arrangement arrangement{.copies = command.copies};
  const int dp = read_arrangement(command.arrangement, arrangement);
  const int workers = dp > 0 ? dp * arrangement.replica() : command.workers;
  check_arrangement(config, arrangement);
  const Offload offload = parse_offload(command.device.offload, device);
  const MemoryGrowth of_data;
  const std::shared_ptr<const Dataset> data = open_split(config, Split::train, &config.data),
                                       validation = open_split(config, Split::validation);
  process += of_data.all();
  const int64_t before = tensors_in_use();
  const MemoryGrowth of_program;
  Training training(config, device, arrangement.zero, offload, data);
  TrainingSetup& setup = training.setup;
  ShardedState shards(setup);
  ParameterShards source(setup, shards, /*average=*/false), averages(setup, shards, /*average=*/true);
  shards.use(source, averages);
  const RunConfig& run = setup.config.run;
  const int64_t samples = setup.data->size(), per_epoch = training.loader.steps_per_epoch();
  fmt::print("model        {}: {} parameters\n", setup.config.model.kind, setup.network->parameters.count());
  const Field target = setup.data->format().target;
  const int64_t classes = setup.data->classes();
  const std::string wanted = target.dtype != DType::f32 ? fmt::format("{} classes", classes)
                             : classes > 0 ? fmt::format("up to {} boxes of {} classes", target.shape[0], classes)
                                           : fmt::format("{} numbers to predict", target.shape.numel());
  fmt::print("data         {}: {} training samples of shape {}, {}\n", setup.config.data.kind, samples,
             to_string(setup.data->input_shape()), wanted);
  print_notices(*setup.data);
  fmt::print("validation   {} samples{}\n", validation->size(),
             run.eval_every > 0 ? fmt::format(", every {} steps and at the end", run.eval_every) : ", at the end");
  fmt::print("steps        {} of {} samples, {} an epoch: {:.3g} epochs\n", training.steps, run.batch_size, per_epoch,
             setup.config.grows()
                 ? static_cast<double>(training.loader.cursor(training.steps).samples) / static_cast<double>(samples)
                 : static_cast<double>(training.steps) / static_cast<double>(per_epoch));
  if (setup.config.grows())
    fmt::print("             the batch grows {}-fold after each {} epochs, up to {} samples\n", run.grow_factor,
               run.grow_every, run.batch_max);
  if (training.adaptive())
    fmt::print("             with adaptive scaling: fewer of up to {} samples each, if the batch grows\n",
               run.batch_max);
  if (run.batch_size > samples)
    fmt::print("             run.batch_size is more than the {} samples: each step takes all of them\n", samples);
  const std::vector<ReplicaPlace> places = places_in(training, arrangement, workers);
  const std::vector<int> virtual_ranks = print_workers(training, places);

  MemoryNeeds needs = needs_of(training, arrangement, offload);
  const int64_t state = state_bytes(needs) + needs.other_state;
  fmt::print("checkpoint   {}, {}, the newest {} are kept\n", memory_text(static_cast<double>(state)),
             run.checkpoint_every > 0 ? fmt::format("every {} steps", run.checkpoint_every) : "at the end", run.keep);
  const bool in_file = offload.to == Offload::To::file;
  const std::vector<Measured> measured = measure(training, places, virtual_ranks, before + held_bytes(setup, needs));
  needs.process = process + of_program.without_tensors() + kWorkerBytes;
  std::vector<WorkerLoad> loads;
  for (size_t w = 0; w < places.size(); ++w)
    loads.push_back({.virtual_ranks = virtual_ranks[w], .place = places[w], .rank_gradient = measured[w].bytes});
  const std::vector<MemoryForecast> forecasts = forecast_memory(needs, arrangement, loads);
  if (device.kind == DeviceKind::cpu) {
    print_memory(forecasts);
    fmt::print("             this machine has {}\n", memory_text(static_cast<double>(machine_memory())));
  } else if (offload.to != Offload::To::none) {
    fmt::print("offload      {} of the optimizer's state of worker 1 in {}\n",
               memory_text(static_cast<double>(forecasts[0].optimizer)), in_file ? "a file" : "the host's memory");
  }
  const bool parts =
      (places[0].shards.size() < config.virtual_shards() && arrangement.tp > 1) || !places[0].segments.empty();
  fmt::print(
      "time         {:.3g} s for worker 1's first gradient of virtual rank 0 on {} thread{}{}; later ones are "
      "faster\n",
      measured[0].seconds, cpu_stream().threads(), cpu_stream().threads() == 1 ? "" : "s",
      !places[0].segments.empty() ? ", through its segments"
      : parts                     ? ", without the values of other virtual shards"
                                  : "");
  if (parts) return 0;
  if (!std::isfinite(measured[0].loss)) fail("the loss of the first gradient is {}", measured[0].loss);
  fmt::print("loss         {:.4g} before training\n", measured[0].loss);
  return 0;
}

}  // namespace

Command add_check(CLI::App& train) {
  const auto options = std::make_shared<CheckOptions>();
  CLI::App* app =
      train.add_subcommand("check", "what a run would do, without training: sizes, memory, who computes what");
  app->add_option("config", options->config, "the configuration, a .toml file")->required();
  app->add_option("--set", options->overrides, "table.key=value: overrides one key of the configuration")
      ->take_all()
      ->allow_extra_args(false);
  app->add_option("--workers", options->workers, "workers of the run")
      ->check(CLI::Range(1, 1024).description(""))
      ->capture_default_str();
  app->add_option("--arrangement", options->arrangement, "how state and work are divided, as in train run");
  app->add_option("--copies", options->copies,
                  "with zero=1 or 2, the number of workers that keep each part of the optimizer's state")
      ->check(CLI::Range(1, 1024).description(""))
      ->capture_default_str();
  options->device.add_to(*app);
  options->device.add_offload_to(*app);
  return {app, [options] {
            options->device.apply();
            return check_run(*options);
          }};
}

}  // namespace elinvar
