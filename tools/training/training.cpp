#include "tools/training/training.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "autograd/precision.h"
#include "elastic/checkpoint/state_parts.h"
#include "nn/clip.h"
#include "nn/micro_batch.h"
#include "nn/running_statistics.h"
#include "nn/touched_rows.h"
#include "nn/weight_average.h"
#include "tensor/base/activity.h"
#include "tensor/base/check.h"
#include "tensor/device_cache.h"
#include "tensor/heap.h"
#include "tensor/ops/copy.h"
#include "tensor/transfer.h"
#include "tools/cli/standard_streams.h"
#include "tools/training/batch_tensors.h"

namespace elinvar {
namespace {

// Copies tensors to the device. All copies are started before the first is waited for. A group of GPUs has already
// reduced the tensors on the device.
std::vector<Tensor> all_sent(const std::vector<Tensor>& tensors, Device device) {
  if (!tensors.empty() && tensors[0].device() == device) return tensors;
  std::vector<Upload> sent;
  for (const Tensor& t : tensors) sent.emplace_back(t, device);
  std::vector<Tensor> there;
  for (const Upload& upload : sent) there.push_back(upload.take());
  return there;
}

// The norm is finite if and only if every element is finite: squares of floats cannot overflow a double.
void check_finite(int64_t step, double loss, double gradient_norm) {
  constexpr const char* kHint = "a lower learning rate, a longer warm-up or clipping (optimizer.clip_norm) may help";
  if (!std::isfinite(loss))
    fail("step {}: the loss is {}; {}", step + 1, std::isnan(loss) ? "not a number" : "infinite", kHint);
  if (!std::isfinite(gradient_norm)) fail("step {}: the reduced gradient is not finite; {}", step + 1, kHint);
}

// Checks only the memory of the input of one virtual rank; activations need more.
void check_memory(const Config& config, const Dataset& data) {
  const int64_t batch = std::min(config.largest_batch(), data.size());
  const int64_t samples = (batch - 1) / config.run.virtual_ranks + 1;
  const double bytes = static_cast<double>(samples) * static_cast<double>(data.input_shape().numel()) *
                       static_cast<double>(size_of(data.input_dtype()));
  const auto memory = static_cast<double>(machine_memory());
  check_setting(
      bytes <= memory, config.adaptive() || config.grows() ? "run.batch_max" : "run.batch_size",
      "= {} makes {} samples of shape {} a virtual rank, {:.4g} GiB, more than the {:.4g} GiB of this machine's "
      "memory; more run.virtual_ranks need less",
      config.largest_batch(), samples, to_string(data.input_shape()), bytes * 0x1p-30, memory * 0x1p-30);
}

LoaderOptions loader_options(const Config& config, const Dataset& data, Device device) {
  with_places(config.places, [&] {
    check_mixing(config.reader.mixing, data);
    check_memory(config, data);
  });
  return {.seed = config.run.seed,
          .global_batch = config.run.batch_size,
          .growth = {.every = config.run.grow_every, .factor = config.run.grow_factor, .most = config.run.batch_max},
          .virtual_ranks = config.run.virtual_ranks,
          .shuffle = config.reader.shuffle,
          .augment = true,
          .augment_epochs = config.reader.augment_epochs,
          .mixing = config.reader.mixing,
          .threads = config.reader.threads,
          .prefetch = config.reader.prefetch,
          .tuned = true,
          .device = device};
}

// Returns the parts of the network that rank gradients' tensors belong to.
TensorParts tensor_parts(const Network& network, const std::vector<MeasuredSegment>& measured) {
  TensorParts parts;
  for (const Parameter& p : network.parameters.list)
    parts.gradients.push_back({.segment = 0, .shard = p.cut.shards > 1 ? p.shard : -1});
  const auto* const segmented = dynamic_cast<const SegmentedNetwork*>(&network);
  if (segmented == nullptr) return parts;
  const std::vector<Segment>& segments = segmented->segments();
  for (size_t i = 0; i < segments.size(); ++i)
    for (const size_t p : segments[i].parameters) parts.gradients[p].segment = static_cast<int>(i);
  for (size_t i = 0; i < measured.size(); ++i)
    parts.statistics.insert(parts.statistics.end(), 2 * measured[i].statistics.size(), static_cast<int>(i));
  return parts;
}

StateDict tensors_of(const Batch& batch) {
  StateDict tensors = {{"input", batch.input}, {"target", batch.target}};
  for (size_t i = 0; i < batch.further_inputs.size(); ++i)
    tensors.emplace(fmt::format("input.{}", i + 1), batch.further_inputs[i]);
  if (batch.mixed.other.defined()) {
    tensors.emplace("other_target", batch.mixed.other);
    tensors.emplace("share", batch.mixed.share);
  }
  return tensors;
}

int64_t steps_of(const Config& config, const Loader& loader) {
  const double epoch_steps = std::ceil(loader.steps_in(config.run.epochs));
  check_setting(epoch_steps <= kMostSteps, "run.epochs", "= {} are {:g} steps; at most {:g} are possible",
                config.run.epochs, epoch_steps, kMostSteps);
  return config.run.steps > 0 ? config.run.steps : static_cast<int64_t>(epoch_steps);
}

}  // namespace

Training::Training(const Config& given, Device device, int zero, const Offload& offload,
                   std::shared_ptr<const Dataset> data)
    : setup(given, Split::train, device, zero, offload, std::move(data)),
      loader(setup.data, loader_options(setup.config, *setup.data, device)),
      graphs_([](const std::string& notice) { say(stderr, "{}\n", notice); }) {
  const Config& c = config();
  if (setup.offload.inputs) inputs_.emplace(setup.offload);
  with_places(c.places, [&] {
    if (c.fast() && setup.precision == Precision::portable)
      check_setting(false, "run.numerics",
                    "= \"fast\" needs a GPU with tensor cores, which {} is not: {}; give workers "
                    "--device cuda, or compute with \"portable\"",
                    to_string(device), fast_products(device).missing);
    steps = steps_of(c, loader);
    scheduled_steps = c.grows() ? std::max<int64_t>(1, loader.step_at(loader.cursor(steps).samples)) : steps;
    check_schedule(c.schedule, scheduled_steps);
    if (!c.adaptive()) return;
    check_setting(c.run.batch_max <= setup.data->size(), "run.batch_max", "= {} are more than the {} training samples",
                  c.run.batch_max, setup.data->size());
    scaling = {.batch = c.run.batch_size,
               .batch_max = c.run.batch_max,
               .ramp_steps = c.run.ramp_steps,
               .goal = loader.cursor(steps).samples};
  });
}

MemberOptions Training::member(const Arrangement& arrangement) const {
  MemberOptions member;
  member.vranks = config().run.virtual_ranks;
  member.steps = steps;
  member.checkpoint_every = config().run.checkpoint_every;
  member.state_digest_every = config().run.state_digest_every;
  member.scaling = scaling;
  if (setup.can_be_sliced()) member.sharding = setup.sharding();
  member.parts = tensor_parts(*setup.network, segments_);
  member.parts->unsharded = arrangement.replica() > 1;
  member.audit = {.every = config().run.audit_every, .seed = config().run.seed};
  return member;
}

Cursor Training::cursor(int64_t step, const ScalingState& scaling_state) const {
  return adaptive() ? Cursor{scaling_state.samples, scaling_state.batch} : loader.cursor(step);
}

void Training::touch(const Cursor& at) {
  find_touched(at);
  read_touched(setup.network->parameters);
}

void Training::find_touched(const Cursor& at) {
  Parameters& parameters = setup.network->parameters;
  if (touched_ == at || !any_sparse(parameters)) return;
  elinvar::touch(parameters, inputs_of(loader.whole_batch(at), Device{}));
  touched_ = at;
}

MicroBatchResult Training::forward_backward(const Batch& batch, const Rng& rng, GradientSink& sink) {
  MicroBatchProgress progress;
  if (sink.begin()) {
    progress.forward = [&](const MicroBatchResult& result) {
      sink.forward(result.count, result.batch_statistics, result.statistics_since);
    };
    progress.gradient = [&](size_t i, Tensor gradient, const Mark& since) {
      sink.gradient(i, std::move(gradient), since);
    };
  }
  const Targets targets = targets_of(batch);
  const Inputs inputs = inputs_of(batch, setup.device);
  if (setup.source != nullptr) {
    Residence residence(dynamic_cast<const SegmentedNetwork&>(*setup.network), *setup.source, sink.shards());
    return micro_batch_gradient(*setup.network, inputs, targets, setup.task, rng, recompute(), progress, sink.shards(),
                                &residence);
  }
  return config().run.cuda_graphs ? graphs_.micro_batch_gradient(*setup.network, inputs, targets, setup.task, rng,
                                                                 recompute(), progress, sink.shards())
                                  : micro_batch_gradient(*setup.network, inputs, targets, setup.task, rng, recompute(),
                                                         progress, sink.shards());
}

// A device may have room for one gradient but not for the earlier ones as well. Then the earlier ones are moved away
// and the gradient is computed again.
RankFacts Training::rank_gradient(Batch batch, int64_t step, int vrank, GradientSink& sink) {
  if (batch.samples == 0) return {};
  sink.reads(batch.input);
  const PrecisionScope products(setup.precision);
  const Rng rng{.seed = config().run.seed, .step = static_cast<uint32_t>(step), .vrank = static_cast<uint32_t>(vrank)};
  std::optional<MicroBatchResult> result;
  try {
    result = forward_backward(batch, rng, sink);
  } catch (const DeviceFull&) {
    if (!sink.make_room()) throw;
  }
  if (!result) result = forward_backward(batch, rng, sink);
  sink.end(std::move(result->gradients), std::move(result->batch_statistics));
  statistics_ = std::move(result->statistics);
  learn_segments(result->segments, /*alone=*/&sink.shards() == &local_shards());
  RankFacts facts = facts_of(batch);
  facts.loss_sum = result->loss_sum;
  facts.count = result->count;
  facts.correct = result->correct;
  return facts;
}

RankFacts Training::facts_of(const Batch& batch) {
  StateSum sum = state_sum(digests_of(tensors_of(batch)));
  return {.samples = batch.samples, .batch = sum.digest, .batch_tensors = std::move(sum.parts.tensors)};
}

RankGradient Training::rank_gradient(const Batch& batch, int64_t step, int vrank) {
  GradientSink sink;
  RankFacts facts = rank_gradient(batch, step, vrank, sink);
  RankGradient gradient = sink.take(std::move(facts));
  gradient.statistics_segments = statistics_segments();
  return gradient;
}

// A GPU is not waited for after each segment: there, all count as equally long.
void Training::learn_segments(const std::vector<SegmentRun>& runs, bool alone) {
  if (runs.empty()) return;
  if (alone) {
    segment_seconds_.clear();
    for (const SegmentRun& run : runs) segment_seconds_.push_back(setup.device == Device{} ? run.seconds : 1);
  }
  if (!segments_.empty()) return;
  auto statistics = statistics_.begin();
  for (const SegmentRun& run : runs) {
    const auto end = statistics + static_cast<std::ptrdiff_t>(run.statistics);
    MeasuredSegment& segment = segments_.emplace_back();
    segment.value = run.value;
    segment.statistics = {statistics, end};
    statistics = end;
  }
}

std::vector<int> Training::statistics_segments() const {
  std::vector<int> segments;
  for (size_t i = 0; i < segments_.size(); ++i)
    segments.insert(segments.end(), 2 * segments_[i].statistics.size(), static_cast<int>(i));
  return segments;
}

void Training::measure_segments(const Arrangement& arrangement) {
  const auto* network = dynamic_cast<const SegmentedNetwork*>(setup.network.get());
  check(network != nullptr,
        "--arrangement pp={} needs a network that is a list of segments (nn/segments.h), which {} is not",
        arrangement.pp, config().model.kind);
  const int most = most_stages({std::vector<double>(network->segments().size(), 1.0), homes_of(*network)});
  check(arrangement.pp <= most,
        "--arrangement pp={} needs at least as many segments, but {} has {} that can be divided", arrangement.pp,
        config().model.kind, most);
  int vrank = 0;
  while (loader.samples(0, vrank) == 0) ++vrank;
  touch(loader.cursor(0));
  const Batch batch = loader.batch(0, vrank);
  const PrecisionScope products(setup.precision);
  const Rng rng{.seed = config().run.seed, .vrank = static_cast<uint32_t>(vrank)};
  const auto shards = static_cast<int>(config().virtual_shards());
  PartialShards group({0, (shards - 1) / arrangement.tp + 1});
  ShardGroup& members = arrangement.tp > 1 ? static_cast<ShardGroup&>(group) : local_shards();
  segments_ = elinvar::measure_segments(*network, inputs_of(batch, setup.device), targets_of(batch), setup.task, rng,
                                        {.recompute = recompute(), .group = &members});
  statistics_.clear();
  for (const MeasuredSegment& segment : segments_)
    statistics_.insert(statistics_.end(), segment.statistics.begin(), segment.statistics.end());
}

SegmentCosts Training::segment_costs() const {
  const auto* const network = dynamic_cast<const SegmentedNetwork*>(setup.network.get());
  if (network == nullptr) return {};
  SegmentCosts costs{.homes = homes_of(*network), .names = std::vector<std::string>()};
  for (const Segment& segment : network->segments()) costs.names->push_back(segment.name);
  for (const MeasuredSegment& segment : segments_)
    if (segment.seconds > 0) costs.seconds.push_back(segment.seconds);
  return costs;
}

RankGradient Training::shapes_of_gradient() const {
  RankGradient gradient;
  const auto like = [](const Shape& shape) { return Tensor::scalar(0).expand(shape); };
  for (const Parameter& p : setup.network->parameters.list) gradient.gradients.push_back(like(p.var.grad_shape()));
  for (const Tensor& t : batch_statistics_of(statistics_)) gradient.batch_statistics.push_back(like(t.shape()));
  return gradient;
}

RankGradient Training::partial_gradient(const Batch& batch, int64_t step, int vrank, const ShardRange& shards) {
  class PartialSink final : public GradientSink {
   public:
    explicit PartialSink(const ShardRange& shards) : group_(shards) {}
    ShardGroup& shards() override { return group_; }

   private:
    PartialShards group_;
  };
  PartialSink sink(shards);
  RankFacts facts = rank_gradient(batch, step, vrank, sink);
  RankGradient gradient = sink.take(std::move(facts));
  if (batch.samples == 0) return gradient;
  gradient.statistics_segments = statistics_segments();
  const std::vector<Parameter>& parameters = setup.network->parameters.list;
  gradient.gradients.resize(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i)
    if (Tensor& t = gradient.gradients[i]; !t.defined()) t = Tensor::scalar(0).expand(parameters[i].var.grad_shape());
  return gradient;
}

// Takes the gradients of the slices that this worker keeps, and puts those of sparse tables, of which it has all slices
// if any, together.
Training::ShardedGradients Training::gradients_of(const GradientShards& shards) const {
  const std::vector<Parameter>& parameters = setup.network->parameters.list;
  ShardedGradients gradients{.dense = {}, .of_tables = std::vector<Tensor>(parameters.size())};
  for (const GradientShards::Bucket& bucket : shards.kept) {
    if (bucket.gradients.empty()) continue;
    for (size_t i = 0; i < bucket.slices.size(); ++i) {
      const Slice& slice = bucket.slices[i];
      const Parameter& parameter = parameters[static_cast<size_t>(slice.tensor)];
      if (!parameter.sparse()) {
        gradients.dense.push_back(bucket.gradients[i]);
        continue;
      }
      Tensor& whole = gradients.of_tables[static_cast<size_t>(slice.tensor)];
      const Shape& shape = parameter.var.grad_shape();
      if (slice.numel() == shape.numel()) {
        whole = bucket.gradients[i].reshape(shape);
        continue;
      }
      if (!whole.defined()) whole = Tensor::empty(shape, DType::f32, bucket.gradients[i].device());
      Tensor place = view_of(whole, slice);
      copy(bucket.gradients[i], place);
    }
  }
  gradients.dense = all_sent(gradients.dense, setup.device);
  for (Tensor& table : gradients.of_tables)
    if (table.defined()) table = table.to(setup.device);
  return gradients;
}

Update Training::update(int64_t step, const Reduced& reduced, const GatherSums& gather) {
  const Activity activity("update");
  const ShardedGradients sharded = reduced.shards ? gradients_of(*reduced.shards) : ShardedGradients{};
  const std::vector<Tensor> gradients = reduced.shards ? sharded.dense : all_sent(reduced.gradients, setup.device);
  const double max_norm = config().optimizer.clip_norm;
  const Clipping clipping = reduced.shards ? clip_by_global_norm(reduced.shards->squares, max_norm)
                                           : clip_by_global_norm(gradients, max_norm);
  check_finite(step, reduced.loss, clipping.norm);
  // The schedule follows the number of samples seen if the batch changes.
  const int64_t scheduled =
      adaptive() || config().grows() ? loader.step_at(cursor(step, reduced.scaling_state).samples) : step;
  double lr = learning_rate(config().schedule, config().optimizer.lr, scheduled_steps, scheduled);
  if (adaptive()) lr *= lr_factor(reduced.scaling_state, step, scaling);
  Parameters& parameters = setup.network->parameters;
  find_touched(cursor(step, reduced.scaling_state));
  if (setup.sliced) {
    setup.sliced->step(parameters, gradients, lr, step, clipping.scale, gather,
                       setup.values ? setup.values->tensors()[0] : std::vector<Tensor>(), sharded.of_tables);
    commit_touched(parameters);
  } else {
    setup.optimizer->step(parameters, gradients, lr, step, clipping.scale);
  }
  update_running_statistics(statistics_, reduced.batch_statistics, reduced.leaves);
  return {lr, clipping.norm};
}

void Training::finish_update(int64_t step) {
  if (!setup.average) return;
  const Parameters &parameters = setup.network->parameters, &of_average = setup.average->parameters;
  const double decay = config().optimizer.ema_decay;
  if (!setup.averages) return follow(setup.average->parameters, parameters, decay, step);
  std::vector<Tensor> averages = setup.averages->tensors()[0];
  std::vector<Tensor> weights =
      setup.values ? setup.values->tensors()[0] : views_of(parameters, setup.averages->slices());
  for (size_t i = 0; i < parameters.buffers.size(); ++i) {
    averages.push_back(of_average.buffers[i]->value);
    weights.push_back(parameters.buffers[i]->value);
  }
  if (!averages.empty()) follow(averages, weights, decay, step);
}

}  // namespace elinvar
