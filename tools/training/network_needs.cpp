#include "tools/training/network_needs.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "autograd/precision.h"
#include "data/loader.h"
#include "models/build.h"
#include "nn/clip.h"
#include "nn/input_store.h"
#include "nn/touched_rows.h"
#include "nn/weight_average.h"
#include "tensor/base/check.h"
#include "tensor/heap.h"
#include "tensor/ops/copy.h"
#include "tensor/ops/pointwise.h"
#include "tensor/state.h"
#include "tools/peak/timing.h"
#include "tools/training/batch_tensors.h"
#include "tools/training/gpu_needs.h"
#include "tools/training/memory_growth.h"
#include "tools/training/table_needs.h"
#include "tools/training/training_setup.h"
#include "tools/training/worker_memory.h"

namespace elinvar {
namespace {

constexpr double kEnough = 2;                    // seconds of passes through all segments
constexpr int kRuns = 3;                         // of what takes little time
constexpr int64_t kElements = int64_t{1} << 22;  // with which updates, sums and digests are measured

LoaderOptions loader_of(const Config& config) {
  return {.seed = config.run.seed,
          .global_batch = config.largest_batch(),
          .virtual_ranks = config.run.virtual_ranks,
          .shuffle = config.reader.shuffle,
          .augment_epochs = config.reader.augment_epochs,
          .mixing = config.reader.mixing,
          .threads = 0,
          .prefetch = 0};
}

// The passes of a rank gradient, of which some samples run.
class Passes {
 public:
  Passes(const Config& config, const SegmentedNetwork& network, const Task& task, const Batch& batch,
         InputStore* inputs, const NeedsOptions& options)
      : config_(config), network_(network), task_(task), batch_(batch), inputs_(inputs), options_(options) {}

  std::vector<MeasuredSegment> run(int64_t samples, ShardGroup& group) const {
    Batch some = batch_;
    for (Tensor* t : {&some.input, &some.target, &some.mixed.other, &some.mixed.share}) keep_first(*t, samples);
    for (Tensor& further : some.further_inputs) keep_first(further, samples);
    return measure_segments(network_, inputs_of(some, options_.device), targets_of(some), task_,
                            {.seed = config_.run.seed},
                            {.recompute = {config_.run.recompute, inputs_}, .group = &group},
                            {.runs = kRuns, .statistics = false, .greatest = options_.greatest});
  }

 private:
  static void keep_first(Tensor& t, int64_t samples) {
    if (t.defined()) t = t.slice(0, 0, samples).to_contiguous();
  }

  const Config& config_;
  const SegmentedNetwork& network_;
  const Task& task_;
  const Batch& batch_;
  InputStore* inputs_;
  const NeedsOptions& options_;
};

double sum_of_seconds(const std::vector<MeasuredSegment>& segments) {
  double sum = 0;
  for (const MeasuredSegment& segment : segments) sum += segment.seconds;
  return sum;
}

// Returns what all of `shards` virtual shards need, and what one needs, as a common part and that of all shards.
Divided divided(double all, double one, int shards) {
  if (shards == 1) return {.common = all};
  const double cut = std::clamp((all - one) * shards / (shards - 1), 0.0, all);
  return {.common = all - cut, .shards = cut};
}

// `scale`: samples of a rank gradient for each that ran.
SegmentNeeds needs_of(const MeasuredSegment& all, const MeasuredSegment& one, int shards, double scale) {
  const auto scaled = [&](ShardSums sums) {
    sums.bytes = static_cast<int64_t>(scale * static_cast<double>(sums.bytes));
    return sums;
  };
  const auto of = [&](auto amount) {
    return divided(scale * static_cast<double>(amount(all)), scale * static_cast<double>(amount(one)), shards);
  };
  return {.forward = of([](const MeasuredSegment& m) { return m.forward; }),
          .backward = of([](const MeasuredSegment& m) { return m.seconds - m.forward; }),
          .held = of([](const MeasuredSegment& m) { return m.held; }),
          .more = of([](const MeasuredSegment& m) { return m.peak - m.held; }),
          .forward_sums = scaled(all.forward_sums),
          .backward_sums = scaled(all.backward_sums),
          .value = static_cast<int64_t>(scale * static_cast<double>(all.value.numel() * size_of(all.dtype)))};
}

TensorParts parts_of(const SegmentedNetwork& network) {
  TensorParts parts;
  for (const Parameter& p : network.parameters.list)
    parts.gradients.push_back({.segment = 0, .shard = p.cut.shards > 1 ? p.shard : -1});
  for (size_t i = 0; i < network.segments().size(); ++i)
    for (const size_t p : network.segments()[i].parameters) parts.gradients[p].segment = static_cast<int>(i);
  return parts;
}

// Measures what is done to all gradients on a tensor of its own, whose size does not depend on the network.
void measure_update(const Config& config, int64_t elements, const NeedsOptions& options, NetworkNeeds& needs) {
  const Shape shape{kElements / 1024, 1024};
  Parameters one;
  (void)Scope(one, 0).parameter("weight", shape,
                                [](Tensor& values, uint64_t) { std::ranges::fill(values.span<float>(), 0.5F); });
  one.move_to(options.device);
  const auto optimizer = make_optimizer(config.optimizer, one, nullptr, options.offload);
  needs.memory.slots = static_cast<int>(optimizer->state().size());
  if (!needs.timed) return;
  const std::vector<Tensor> gradients{Tensor::full(shape, 1e-3, DType::f32, options.device)};
  Tensor other = Tensor::zeros(shape, DType::f32, options.device);
  const double scale = static_cast<double>(elements) / static_cast<double>(kElements);
  const auto seconds = [&](const auto& work) {
    (void)options.greatest(0);
    const auto complete = [&] {
      work();
      on_gpu(options.device, [](auto& stream) { stream.synchronize(); });
    };
    return scale * bench::median_seconds(1, kRuns, complete, options.device);
  };
  needs.norm = seconds([&] { (void)clip_by_global_norm(gradients, config.optimizer.clip_norm); });
  needs.update = seconds([&] { optimizer->step(one, gradients, config.optimizer.lr, 0, 1.0); });
  std::vector<Tensor> averages{other};
  if (const double decay = config.optimizer.ema_decay; decay > 0)
    needs.update += seconds([&] { follow(averages, gradients, decay, 0); });
  needs.sum = seconds([&] { add_into(other, gradients[0]); });
  needs.scale = seconds([&] { scale_into(other, 0.5); });
  needs.digest = seconds([&] { (void)digest(other); });
  needs.copy = seconds([&] { copy(gradients[0], other); });
}

// Returns the seconds in which a process makes a virtual rank's batch and digests it.
double batch_seconds(Loader& loader, int vrank, const std::function<double(double)>& greatest) {
  (void)greatest(0);
  return bench::median_seconds(1, kRuns, [&] {
    const Batch batch = loader.batch(0, vrank);
    (void)digest(batch.input);
  });
}

// Lookups in sparse tables, which are absent, give zeros.
void look_up_zeros(Parameters& parameters) {
  for (const Parameter& p : parameters.list) {
    if (!p.sparse()) continue;
    p.touched->fetch_by([channels = p.var.dim(1)](std::span<const int64_t> rows) {
      return Tensor::zeros({std::ssize(rows), channels});
    });
  }
}

// Touches the rows of sparse tables, and returns the seconds that it takes a process to find those of a step.
double touch_seconds(const Loader& loader, Parameters& parameters, const std::function<double(double)>& greatest) {
  (void)greatest(0);
  return bench::median_seconds(1, kRuns, [&] {
    touch(parameters, inputs_of(loader.whole_batch(loader.cursor(0)), Device{}));
    read_touched(parameters);
  });
}

int most_zero(const Config& config) {
  if (!is_built_in_optimizer(config.optimizer.kind)) return 0;
  return config.tensorboard.text_every > 0 ? 2 : 3;
}

}  // namespace

std::vector<int> first_readers_of(const SegmentedNetwork& network) {
  std::vector<int> readers(network.parameters.list.size(), 0);
  for (size_t i = network.segments().size(); i-- > 0;)
    for (const size_t p : network.segments()[i].parameters) readers[p] = static_cast<int>(i);
  return readers;
}

MeasuredNetwork measure_network(const Config& config, const NeedsOptions& options) {
  MeasuredNetwork result;
  NetworkNeeds& needs = result.needs;
  needs.memory.process = options.process + worker_bytes(config.reader.threads);
  needs.memory.spare = kHeapSpare;
  needs.memory.offload = options.offload;
  needs.memory.gpu = options.gpu;
  needs.timed = !options.gpu || options.device != Device{};
  needs.memory.checkpoints = config.run.checkpoint_every > 0;
  const MemoryGrowth of_data;
  const std::shared_ptr<const Dataset> data = open_split(config, Split::train),
                                       validation = open_split(config, Split::validation);
  needs.memory.process += of_data.all();
  const MemoryGrowth of_program;
  Config resolved = config;
  const MadeTask made = task_of(resolved, *data);
  const InputInfo input = input_of(*data, made.outputs);
  std::unique_ptr<Network> built;
  {
    const OutlineScope no_values;
    built = build(config.model, input, config.run.seed);
  }
  const auto* const network = dynamic_cast<const SegmentedNetwork*>(built.get());
  check(network != nullptr,
        "arrangements are predicted for a network that is a list of segments (nn/segments.h), "
        "which {} is not",
        config.model.kind);
  result.parameters = network->parameters.count();
  with_places(config.places, [&] { make_sparse(built->parameters, config.optimizer.sparse, config.largest_batch()); });
  look_up_zeros(built->parameters);
  set_parameters(needs.memory, network->parameters, config.optimizer);
  needs.memory.parts = parts_of(*network);
  needs.homes = homes_of(*network);
  needs.first_readers = first_readers_of(*network);
  needs.shards = static_cast<int>(config.virtual_shards());
  needs.virtual_ranks = config.run.virtual_ranks;
  needs.most_zero = most_zero(config);
  needs.memory.average = config.optimizer.ema_decay > 0;
  const int copies = needs.memory.average ? 2 : 1;  // of buffers
  for (const std::shared_ptr<Buffer>& buffer : network->parameters.buffers) {
    buffer->value = buffer->value.clone();  // elements of an outline's buffer are one
    needs.memory.other_state += copies * buffer->value.bytes();
  }
  built->parameters.move_to(options.device);

  const PrecisionScope products(precision_of(config, options.device));
  Loader loader(data, loader_of(config));
  int vrank = 0;
  while (loader.samples(0, vrank) == 0) ++vrank;
  const Batch batch = loader.batch(0, vrank);
  int64_t of_inputs = batch.input.bytes();
  for (const Tensor& further : batch.further_inputs) of_inputs += further.bytes();
  add_batches(needs.memory, config, batch);
  needs.batch = batch_seconds(loader, vrank, options.greatest);
  if (any_sparse(network->parameters)) {
    needs.memory.process += config.run.virtual_ranks * of_inputs;  // of the whole batch, whose rows are looked for
    needs.touch = touch_seconds(loader, built->parameters, options.greatest);
  }
  check_offload(config, options.offload);
  std::optional<InputStore> inputs;
  if (options.offload.inputs) inputs.emplace(options.offload);
  const Passes passes(config, *network, made.task, batch, inputs ? &*inputs : nullptr, options);
  result.samples = batch.samples;
  result.measured = std::min<int64_t>(batch.samples, batch.is_text() ? 1 : 2);  // batch norms need two
  std::vector<MeasuredSegment> all = passes.run(result.measured, local_shards());
  const double each = options.greatest(sum_of_seconds(all)) / static_cast<double>(result.measured);
  const int64_t more = std::min(batch.samples, static_cast<int64_t>(kEnough / std::max(each, 1e-9)));
  if (more > result.measured) all = passes.run(result.measured = more, local_shards());
  PartialShards one_shard({0, 1});
  const std::vector<MeasuredSegment> one = needs.shards > 1 ? passes.run(result.measured, one_shard) : all;
  const double scale = static_cast<double>(batch.samples) / static_cast<double>(result.measured);
  for (size_t i = 0; i < all.size(); ++i) needs.segments.push_back(needs_of(all[i], one[i], needs.shards, scale));
  int64_t elements = 0;
  for (const Parameter& p : network->parameters.list) elements += p.var.grad_shape().numel();
  measure_update(config, elements, options, needs);
  needs.memory.process += of_program.without_tensors();
  return result;
}

}  // namespace elinvar
