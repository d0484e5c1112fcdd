// `check`: says what a run of a configuration would do, and refuses what the run would refuse, before anything starts.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "elastic/protocol/plan.h"
#include "elastic/step/arrangement.h"
#include "nn/update_rule.h"
#include "tensor/base/check.h"
#include "tensor/device_description.h"
#include "tensor/device_memory.h"
#include "tensor/heap.h"
#include "tools/cli/device_options.h"
#include "tools/train/commands.h"
#include "tools/training/gpu_assignment.h"
#include "tools/training/gpu_needs.h"
#include "tools/training/memory_forecast.h"
#include "tools/training/memory_growth.h"
#include "tools/training/network_needs.h"
#include "tools/training/parameter_shards.h"
#include "tools/training/pass_memory.h"
#include "tools/training/progress.h"
#include "tools/training/table_needs.h"
#include "tools/training/training.h"
#include "tools/training/worker_memory.h"

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

// Returns true if segments are measured one by one, and not a rank gradient as a whole: gradients are made or leave
// segment by segment, or stay on a GPU, while here they would leave it.
bool by_segments(const Training& training, const Arrangement& arrangement) {
  const bool segmented = dynamic_cast<const SegmentedNetwork*>(training.setup.network.get()) != nullptr;
  return arrangement.pp > 1 || (segmented && (arrangement.zero >= 2 || training.setup.device != Device{}));
}

// Returns the places of workers that are equally fast.
std::vector<ReplicaPlace> places_in(Training& training, const Arrangement& arrangement, int workers) {
  if (by_segments(training, arrangement)) training.measure_segments(arrangement);
  return deal_replicas(
      limits_of(arrangement, static_cast<int>(training.config().virtual_shards()), training.segment_costs()),
      std::vector<double>(static_cast<size_t>(workers), 1.0));
}

// Prints which virtual ranks and virtual shards each worker computes. Returns the numbers of virtual ranks.
std::vector<Interval> print_workers(const Training& training, const std::vector<ReplicaPlace>& places) {
  const int vranks = training.config().run.virtual_ranks, workers = static_cast<int>(places.size());
  const int replicas = places.back().replica + 1;
  const auto shards = static_cast<int>(training.config().virtual_shards());
  std::vector<Interval> of_workers;
  const auto shares =
      shares_of_members(places, assign(vranks, std::vector<double>(static_cast<size_t>(replicas), 1.0)));
  for (int w = 0; w < workers; ++w) {
    const std::string name = fmt::format("worker {}", w + 1);
    const std::vector<Interval>& share = shares[static_cast<size_t>(w)];
    int64_t samples = 0;
    const int from = share.empty() ? 0 : share.front().begin;
    of_workers.push_back({from, from + total(share)});
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
  return of_workers;
}

// Prints what each worker needs; workers that need the same are one line.
void print_memory(const std::vector<MemoryForecast>& workers, const MemoryNeeds& needs) {
  const auto text = [](int64_t bytes) { return memory_text(static_cast<double>(bytes)); };
  const std::string elsewhere =
      needs.offload.to == Offload::To::file ? " in a file, not counted" : " in the host's memory";
  for (size_t first = 0, next = 0; first < workers.size(); first = next) {
    const MemoryForecast& w = workers[first];
    while (next < workers.size() && text(workers[next].peak) == text(w.peak)) ++next;
    const std::string who = next - first == 1 ? fmt::format("worker {}", first + 1)
                                              : fmt::format("each of workers {} to {}", first + 1, next);
    fmt::print(
        "memory       {} on {}{}: {} of parameters, {} of the optimizer's state{}{}, {} for checkpoints{}, and a "
        "step\n",
        text(w.peak), needs.gpu ? "the GPU of " : "", who, text(w.parameters), text(w.optimizer),
        w.offloaded > 0 ? elsewhere : "", w.average > 0 ? fmt::format(", {} of averages", text(w.average)) : "",
        text(w.snapshot), needs.gpu ? " in the host's memory" : "");
    if (needs.gpu) fmt::print("             {} on its host\n", text(w.host));
  }
}

// The first gradient of virtual rank 0, as a worker computes it.
struct Measured {
  std::vector<int64_t> passes;  // WorkerLoad::passes
  double seconds = 0, loss = 0;
};

// Returns the needs of a network's segments as they were measured, with the virtual shards that a member computes.
NetworkNeeds needs_of_segments(const Training& training, const Arrangement& arrangement) {
  NetworkNeeds needs;
  if (training.setup.device != Device{}) needs.memory.gpu.emplace();
  needs.shards = static_cast<int>(training.config().virtual_shards());
  set_parameters(needs.memory, training.setup.network->parameters, training.config().optimizer);
  needs.memory.parts = *training.member(arrangement).parts;
  needs.first_readers = first_readers_of(dynamic_cast<const SegmentedNetwork&>(*training.setup.network));
  for (const MeasuredSegment& segment : training.segments()) {
    SegmentNeeds& needed = needs.segments.emplace_back();
    needed.held.common = static_cast<double>(segment.held);
    needed.more.common = static_cast<double>(segment.peak - segment.held);
  }
  return needs;
}

double seconds_of(const Training& training, const ReplicaPlace& place) {
  double seconds = 0;
  for (size_t i = 0; i < training.segments().size(); ++i)
    if (contains(place.segments, static_cast<int>(i))) seconds += training.segments()[i].seconds;
  return seconds;
}

// Workers that compute equally many virtual shards need the same. `held`: the bytes of the device's state.
std::vector<Measured> measure(Training& training, const Arrangement& arrangement,
                              const std::vector<ReplicaPlace>& places, const Batch& batch,
                              const std::vector<Interval>& virtual_ranks, int64_t held) {
  const Device device = training.setup.device;
  std::optional<NetworkNeeds> segments;
  if (by_segments(training, arrangement)) segments = needs_of_segments(training, arrangement);
  std::map<int, Measured> by_shards;
  std::vector<Measured> all;
  for (size_t w = 0; w < places.size(); ++w) {
    const ReplicaPlace& place = places[w];
    std::vector<int64_t> passes;
    if (segments) passes = pass_bytes(*segments, places, place, virtual_ranks[w].size(), arrangement.zero);
    if (!place.segments.empty()) {
      all.push_back({.passes = std::move(passes), .seconds = seconds_of(training, place)});
      continue;
    }
    const auto [found, fresh] = by_shards.try_emplace(place.shards.size());
    if (fresh) {
      reset_peak_of(device);
      const auto began = std::chrono::steady_clock::now();
      const bool whole = places.size() == static_cast<size_t>(places.back().replica) + 1;
      const RankGradient gradient =
          whole ? training.rank_gradient(batch, 0, 0)
                : training.partial_gradient(batch, 0, 0, {place.shards.begin, place.shards.end});
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
      found->second = {.passes = {memory_of(device).peak_in_use - held},
                       .seconds = seconds.count(),
                       .loss = gradient.facts.loss_sum / static_cast<double>(gradient.facts.count)};
    }
    all.push_back(found->second);
    if (segments) all.back().passes = std::move(passes);
  }
  return all;
}

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

// The bytes of tensors that this process's device holds between steps, of which the forecast counts a worker's part.
int64_t held_bytes(const TrainingSetup& setup, const MemoryNeeds& needs) {
  int64_t held = bytes_of(setup.state());
  if (setup.optimizer && is_elsewhere(needs)) held -= bytes_of(setup.optimizer->state());
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
  const int64_t before = memory_of(device).in_use;
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
  const std::vector<Interval> virtual_ranks = print_workers(training, places);

  MemoryNeeds needs = needs_of(training, arrangement, offload);
  const int64_t state = state_bytes(needs) + needs.other_state;
  fmt::print("checkpoint   {}, {}, the newest {} are kept\n", memory_text(static_cast<double>(state)),
             run.checkpoint_every > 0 ? fmt::format("every {} steps", run.checkpoint_every) : "at the end", run.keep);
  training.touch(training.loader.cursor(0));
  const Batch batch = training.loader.batch(0, 0);
  if (device != Device{}) {
    const int sharing = workers_sharing(command.device.device, device, workers, gpus_here());
    needs.gpu = gpu_needs(config, device, sharing);
  }
  // A rank gradient as a whole is measured with the batches of its loader.
  if (device != Device{} || by_segments(training, arrangement)) add_batches(needs, config, batch);
  const std::vector<Measured> measured =
      measure(training, arrangement, places, batch, virtual_ranks, before + held_bytes(setup, needs));
  needs.process += process + of_program.without_tensors() + worker_bytes(/*readers=*/0);
  std::vector<WorkerLoad> loads;
  for (size_t w = 0; w < places.size(); ++w)
    loads.push_back({.virtual_ranks = virtual_ranks[w].size(),
                     .first = virtual_ranks[w].begin,
                     .place = places[w],
                     .passes = measured[w].passes});
  print_memory(forecast_memory(needs, arrangement, loads), needs);
  const auto room = static_cast<double>(describe(device).memory);
  if (device != Device{} && room > 0) fmt::print("             this GPU has {}\n", memory_text(room));
  fmt::print("             this machine has {}\n", memory_text(static_cast<double>(machine_memory())));
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
