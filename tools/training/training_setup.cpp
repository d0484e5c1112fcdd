#include "tools/training/training_setup.h"

#include <algorithm>
#include <utility>

#include "autograd/precision.h"
#include "data/masked_tokens.h"
#include "elastic/checkpoint/checkpoint.h"
#include "models/build.h"
#include "nn/micro_batch.h"
#include "nn/touched_rows.h"
#include "nn/update_rule.h"
#include "tensor/base/activity.h"
#include "tensor/base/check.h"
#include "tensor/base/file.h"
#include "tensor/base/json.h"
#include "tensor/base/setting.h"
#include "tensor/heap.h"
#include "tensor/ops/copy.h"
#include "tools/cli/standard_streams.h"
#include "tools/training/batch_tensors.h"
#include "tools/training/table_needs.h"

namespace elinvar {
namespace {

constexpr std::string_view kModel = "model.", kAverage = "average.", kOptimizer = "optimizer.";

// Returns the entries whose names begin with `prefix`, with the prefix removed.
StateDict part_of(const StateDict& state, std::string_view prefix) {
  StateDict part;
  for (const auto& [name, tensor] : state)
    if (name.starts_with(prefix)) part.emplace(name.substr(prefix.size()), tensor);
  return part;
}

// Mirrors images (N, H, W, C) left to right.
Tensor mirrored(const Tensor& images) {
  Tensor result = Tensor::empty(images.shape());
  const int64_t width = images.dim(2), channels = images.dim(3), rows = images.dim(0) * images.dim(1);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t x = 0; x < width; ++x)
      std::copy_n(images.data<float>() + (row * width + width - 1 - x) * channels, channels,
                  result.data<float>() + (row * width + x) * channels);
  return result;
}

// Returns how many tensors an optimiser keeps for each parameter; 0 for a registered optimiser, which does not declare
// it.
int kept_by(const OptimizerConfig& o) {
  if (!is_built_in_optimizer(o.kind)) return 0;
  return o.kind == "sgd" || o.kind == "lars" ? (o.momentum > 0 ? 1 : 0) : 2;
}

// Refuses a job before allocation if the parameters and, unless workers divide them, their average and the optimiser's
// state, if no file has it, exceed the machine's memory.
void check_memory(const Config& config, const InputInfo& input, bool divided, bool in_file) {
  const int kept = divided || in_file ? 0 : kept_by(config.optimizer),
            average = !divided && config.optimizer.ema_decay > 0 ? 1 : 0;
  const OutlineScope no_values;
  const double one = static_cast<double>(build(config.model, input, 0)->parameters.count()) * sizeof(float);
  const double memory = static_cast<double>(machine_memory());
  check(
      (1 + average + kept) * one <= memory,
      "{}: model.kind = '{}' has parameters of {:.4g} GiB, and with the state of the optimiser takes {:.4g} GiB, more "
      "than the {:.4g} GiB of this machine's memory; smaller layers, or fewer, need less",
      config.model.place, config.model.kind, one * 0x1p-30, (1 + average + kept) * one * 0x1p-30, memory * 0x1p-30);
}

}  // namespace

std::shared_ptr<const Dataset> open_split(const Config& config, Split split, DataConfig* resolved) {
  return with_places(config.places, [&] { return open_dataset(config.data, split, resolved); });
}

MadeTask task_of(Config& config, const Dataset& data) {
  const Field target = data.format().target;
  with_places(config.places, [&] {
    check_setting(!ignores_targets(config.data) || config.loss.ignore_index == kIgnoredTarget, "loss.ignore_index",
                  "must be {} with {}, got {}", kIgnoredTarget,
                  config.data.masking > 0 ? "data.masking" : "pairs of texts", config.loss.ignore_index);
  });
  Spec resolved;
  MadeTask made = make_task(config.task, config.loss,
                            {.sample = target.shape, .dtype = target.dtype, .classes = data.classes()}, &resolved);
  if (!config.task.kind.empty()) config.task = std::move(resolved);
  return made;
}

InputInfo input_of(const Dataset& data, int64_t outputs) {
  const std::vector<Field> fields = data.format().inputs;
  InputInfo info{.sample = fields[0].shape,
                 .classes = outputs,
                 .dtype = fields[0].dtype,
                 .symbols = fields[0].symbols,
                 .most_ids = fields[0].most_ids};
  for (const Field& field : std::span(fields).subspan(1))
    info.further.push_back({field.shape, field.dtype, field.symbols, field.most_ids});
  return info;
}

Precision precision_of(const Config& config, Device device) {
  if (config.exact()) return Precision::exact;
  if (!config.fast() || !fast_products(device).missing.empty()) return Precision::portable;
  return config.run.precision == "tf32" ? Precision::tf32 : Precision::bf16;
}

void print_notices(const Dataset& data) {
  for (const std::string& notice : data.take_notices()) say(stderr, "{}\n", notice);
}

void check_can_be_absent(const Config& config, bool segmented) {
  check(segmented, "--arrangement zero=3 needs a network that is a list of segments (nn/segments.h), which {} is not",
        config.model.kind);
  check(config.tensorboard.text_every == 0,
        "--arrangement zero=3: no worker has all parameters, to write texts (tensorboard.text_every)");
}

TrainingSetup::TrainingSetup(const Config& given, Split split, Device place, int zero, Offload state,
                             std::shared_ptr<const Dataset> opened)
    : config(given),
      device(place),
      offload(std::move(state)),
      data(opened ? std::move(opened) : open_split(given, split, &config.data)) {
  build_all(given, zero);
}

TrainingSetup::TrainingSetup(const Config& given, std::shared_ptr<const Dataset> opened, Device place)
    : config(given), device(place), data(std::move(opened)) {
  build_all(given);
}

void TrainingSetup::build_all(const Config& given, int zero) {
  check_offload(config, offload);
  precision = precision_of(config, device);
  MadeTask made = task_of(config, *data);
  task = std::move(made.task);
  const InputInfo input = input_of(*data, made.outputs);
  const bool absent = zero >= 3, average_absent = zero > 0;
  if (!absent) check_memory(config, input, zero > 0, offload.to == Offload::To::file);
  {
    std::optional<OutlineScope> no_values;
    if (absent) no_values.emplace();
    network = build(given.model, input, given.run.seed, &config.model);
  }
  if (absent) check_can_be_absent(config, segmented());
  // All elements of an outline's buffer share one place in memory, so the buffer is copied.
  for (const std::shared_ptr<Buffer>& buffer : network->parameters.buffers)
    if (absent) buffer->value = buffer->value.clone();
  with_places(config.places, [&] { exempt_from_decay(network->parameters, config.optimizer.exempt); });
  with_places(config.places, [&] {
    make_sparse(network->parameters, config.optimizer.sparse, config.largest_batch());
    check_setting(config.optimizer.ema_decay == 0 || !any_grows(network->parameters), "optimizer.ema_decay",
                  "has no meaning for tables that grow (model.rows)");
  });
  network->parameters.move_to(device);
  if (config.optimizer.ema_decay > 0) {
    std::optional<OutlineScope> no_values;
    if (average_absent) no_values.emplace();
    average = build(given.model, input, given.run.seed);
    for (const std::shared_ptr<Buffer>& buffer : average->parameters.buffers)
      if (average_absent) buffer->value = buffer->value.clone();
    make_sparse(average->parameters, config.optimizer.sparse, config.largest_batch());
    average->parameters.move_to(device);
    if (average_absent) averages = no_slices();
  }
  with_places(config.places, [&] {
    if (absent) values = no_slices();
    if (zero > 0) sliced = sliced_optimizer();
    else optimizer = make_optimizer(given.optimizer, network->parameters, &config.optimizer, offload);
  });
}

bool TrainingSetup::segmented() const { return dynamic_cast<const SegmentedNetwork*>(network.get()) != nullptr; }

// Tensors of the parameters' shapes, of which no slice is kept.
std::unique_ptr<SlicedTensors> TrainingSetup::no_slices() const {
  return std::make_unique<SlicedTensors>(network->parameters, std::vector<std::string>{""}, std::vector<Slice>());
}

// Copies of these slices.
std::unique_ptr<SlicedTensors> TrainingSetup::slices_of(const Parameters& whole,
                                                        const std::vector<Slice>& slices) const {
  std::unique_ptr<SlicedTensors> cut = no_slices();
  cut->keep(slices);
  for (size_t i = 0; i < slices.size(); ++i)
    copy(view_of(whole.list[static_cast<size_t>(slices[i].tensor)].var.value(), slices[i]), cut->tensors()[0][i]);
  return cut;
}

bool TrainingSetup::can_be_sliced() const { return is_built_in_optimizer(config.optimizer.kind); }

ShardOptions TrainingSetup::sharding() const {
  ShardOptions sharding{.multiple = kChunkElements,
                        .parameters = shapes_of(network->parameters),
                        .sums = make_update_rule(config.optimizer)->has_trust_ratio(),
                        .zero = values   ? 3
                                : sliced ? 1
                                         : 0};
  sharding.tables = table_cuts(network->parameters, config.optimizer);
  return sharding;
}

std::unique_ptr<SlicedOptimizer> TrainingSetup::sliced_optimizer() const {
  return std::make_unique<SlicedOptimizer>(config.optimizer, network->parameters, std::vector<Slice>(), offload);
}

void TrainingSetup::hold(int zero) {
  if (zero >= 3) check_can_be_absent(config, segmented());
  if (zero > 0 && !sliced) sliced = sliced_optimizer();
  if (zero == 0 && !optimizer) optimizer = make_optimizer(config.optimizer, network->parameters, nullptr, offload);
  if (zero > 0) optimizer.reset();
  else sliced.reset();
  if (average && zero > 0 && !averages) averages = no_slices();
  if (average && zero == 0) averages.reset();
  if (average)
    for (Parameter& p : average->parameters.list) {
      if (averages) p.var.mutable_value().release();
      else p.var.mutable_value().restore();
    }
  if (zero >= 3 && !values) values = no_slices();
  if (zero < 3 && values) {
    values.reset();
    for (Parameter& p : network->parameters.list) p.var.mutable_value().restore();
  } else if (zero >= 3) {
    for (Parameter& p : network->parameters.list) p.var.mutable_value().release();
  }
}

void TrainingSetup::keep(int zero, std::vector<Slice> slices) {
  const std::unique_ptr<Optimizer> whole = std::move(optimizer);
  const std::vector<Slice> kept = sliced ? sliced->slices() : std::vector<Slice>();
  const std::vector<Tensor> parts = values ? values->tensors()[0] : std::vector<Tensor>();
  const std::vector<Parameter>& parameters = network->parameters.list;
  std::unique_ptr<SlicedTensors> cut, cut_averages;
  if (zero >= 3 && !values) cut = slices_of(network->parameters, slices);
  if (average && !averages) cut_averages = slices_of(average->parameters, slices);
  const bool joins = zero < 3 && values != nullptr;
  hold(zero);
  for (const Parameter& p : parameters)
    if (joins && p.sparse()) p.touched->updates_all();
  for (size_t i = 0; joins && i < kept.size(); ++i) {
    Tensor place = view_of(parameters[static_cast<size_t>(kept[i].tensor)].var.value(), kept[i]);
    copy(parts[i], place);
  }
  if (cut) values = std::move(cut);
  else if (values) values->keep(slices);
  if (cut_averages) averages = std::move(cut_averages);
  else if (averages) averages->keep(slices);
  sliced->keep(std::move(slices));
  if (!whole) return;
  const StateDict state = whole->state();
  for (SlotSlice& slot : sliced->slots()) copy(view_of(state.at(slot.name), slot.slice), slot.values);
}

StateDict TrainingSetup::state() const {
  StateDict all;
  const Parameters& own = network->parameters;
  for (const auto& [name, tensor] : values ? own.buffer_state() : own.state())
    all.emplace(std::string(kModel) + name, tensor);
  if (average)
    for (const auto& [name, tensor] : averages ? average->parameters.buffer_state() : average->parameters.state())
      all.emplace(std::string(kAverage) + name, tensor);
  if (optimizer)
    for (const auto& [name, tensor] : optimizer->state()) all.emplace(std::string(kOptimizer) + name, tensor);
  return all;
}

void TrainingSetup::load(const StateDict& state) {
  if (values) network->parameters.load_buffers(part_of(state, kModel));
  else network->parameters.load(part_of(state, kModel));
  if (average && averages) average->parameters.load_buffers(part_of(state, kAverage));
  else if (average) average->parameters.load(part_of(state, kAverage));
  if (optimizer) optimizer->load(part_of(state, kOptimizer));
}

int64_t TrainingSetup::load_network(const std::filesystem::path& run_directory) {
  std::vector<CheckpointStore::Rejected> rejected;
  const auto any = [](const Checkpoint&) { return std::string(); };
  const auto found = CheckpointStore(run_directory / "checkpoints").newest_good(any, rejected);
  for (const auto& [step, reason] : rejected) say(stderr, "{}\n", reason);
  if (!found) fail("{} has no good checkpoint yet", run_directory.string());
  network->parameters.load(part_of(found->state, average ? kAverage : kModel));
  average = nullptr;
  return found->step;
}

int64_t TrainingSetup::rank_samples() const {
  return (config.run.batch_size + config.run.virtual_ranks - 1) / config.run.virtual_ranks;
}

namespace {

// Returns the folder in which a run was started; "" if its environment.json does not have it.
std::filesystem::path folder_of(const std::filesystem::path& run_directory) {
  const std::filesystem::path file = run_directory / "environment.json";
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) return {};
  const auto environment = parse_json(read_file(file));
  if (!environment.is_object() || !environment.contains("folder") || !environment["folder"].is_string()) return {};
  return environment["folder"].get<std::string>();
}

// Whether a path, or the folder before the first part of it that is a pattern, exists.
bool leads_somewhere(const std::filesystem::path& path) {
  std::string text = path.string();
  if (const size_t pattern = text.find_first_of("{*?["); pattern != std::string::npos)
    text.resize(text.rfind('/', pattern));
  std::error_code error;
  return std::filesystem::exists(text, error);
}

}  // namespace

Config read_run_config(const std::filesystem::path& run_directory) {
  namespace fs = std::filesystem;
  check(fs::exists(run_directory / "config.toml"), "{} is no run directory: it has no config.toml",
        run_directory.string());
  Config config = read_config(run_directory / "config.toml");
  const fs::path began = folder_of(run_directory);
  if (began.empty()) return config;
  for (std::string* path : {&config.data.path, &config.data.tokenizer, &config.data.cache_dir, &config.data.index_dir})
    if (!path->empty() && fs::path(*path).is_relative() && leads_somewhere(began / *path))
      *path = (began / *path).lexically_normal().string();
  return config;
}

void check_arrangement(const Config& config, const Arrangement& arrangement) {
  const int64_t shards = config.virtual_shards();
  check(arrangement.tp <= shards,
        "--arrangement tp={} needs at least as many virtual shards, but model.virtual_shards = {}; more of them change "
        "the result, and only transformers and networks of layers have them",
        arrangement.tp, shards);
}

void check_offload(const Config& config, const Offload& offload) {
  check(!offload.inputs || config.run.recompute,
        "--offload ..,inputs: only with run.recompute = true are inputs of blocks what is kept between the passes");
}

Tensor output_of(const TrainingSetup& setup, std::span<const Inputs> views, ShardGroup& group,
                 std::vector<ExpertLoad>* loads) {
  const PrecisionScope products(setup.precision);
  std::optional<Residence> residence;
  const auto* const segments = dynamic_cast<const SegmentedNetwork*>(&setup.best());
  if (ParameterSource* const source = setup.best_source(); source != nullptr && segments != nullptr)
    residence.emplace(*segments, *source, group);
  return predict(setup.best(), views, group, residence ? &*residence : nullptr, loads).to(DType::f32);
}

std::vector<BatchScore> score(const TrainingSetup& setup, std::shared_ptr<const Dataset> split, int share, int shares,
                              bool mirror, const EachBatch& each, ShardGroup& group) {
  Loader loader(std::move(split), {.seed = setup.config.run.seed,
                                   .global_batch = setup.rank_samples(),
                                   .shuffle = false,
                                   .augment = false,
                                   .threads = setup.config.reader.threads,
                                   .prefetch = setup.config.reader.prefetch,
                                   .device = setup.device});
  std::vector<BatchScore> scores;
  const int64_t batches = loader.steps_per_epoch();
  const int64_t first = batches * share / shares, end = batches * (share + 1) / shares;
  std::optional<WholeResidence> whole;
  const bool in_segments = dynamic_cast<const SegmentedNetwork*>(&setup.best()) != nullptr;
  if (ParameterSource* const source = setup.best_source(); source != nullptr && !in_segments && first < end)
    whole.emplace(setup.best(), *source, group);
  for (int64_t i = first; i < end; ++i) {
    // Timed by itself: the whole may take longer than any limit of a hang.
    const TimedActivity activity("a batch of an evaluation", {.number = i - first + 1, .of = end - first});
    const Batch batch = loader.batch(i, 0);
    std::vector<Inputs> views = {inputs_of(batch, setup.device)};
    if (mirror) views.emplace_back(mirrored(batch.input).to(setup.device));
    std::vector<ExpertLoad> loads;
    const Tensor output = output_of(setup, views, group, &loads);
    scores.push_back(evaluate(output, batch.target, setup.task));
    scores.back().samples = batch.samples;
    scores.back().loads = std::move(loads);
    if (each) each(output, batch.target);
  }
  return scores;
}

ValidationScore sum(const std::vector<BatchScore>& batches, const Task& task) {
  BatchScore total;
  for (const BatchScore& batch : batches) total.add(batch);
  if (total.count == 0) fail("no target of the split counts");
  ValidationScore score{.loss = total.loss_sum / static_cast<double>(total.count),
                        .metrics = task->metrics(total),
                        .samples = total.samples};
  score.metrics.merge(metrics_of(total.loads));
  return score;
}

}  // namespace elinvar
