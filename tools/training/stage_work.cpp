#include "tools/training/stage_work.h"

#include <algorithm>
#include <utility>

#include "autograd/precision.h"
#include "nn/micro_batch_passes.h"
#include "nn/running_statistics.h"
#include "tensor/base/activity.h"
#include "tools/training/batch_tensors.h"

namespace elinvar {

const SegmentedNetwork& StageWork::network() const {
  return dynamic_cast<const SegmentedNetwork&>(*training_.setup.network);
}

Rng StageWork::rng_of(int vrank) const {
  return {
      .seed = training_.config().run.seed, .step = static_cast<uint32_t>(step_), .vrank = static_cast<uint32_t>(vrank)};
}

// The shape of what a segment gives for a batch, whose size is the first extent.
Shape StageWork::value_shape(int segment, const Batch& batch) const {
  Shape shape = training_.segments()[static_cast<size_t>(segment)].value;
  shape[0] = batch.samples;
  return shape;
}

StageWork::RankWork& StageWork::work_of(Session::Task& task) {
  const auto found = under_way_.find(task.vrank());
  if (found != under_way_.end()) return found->second;
  Batch batch = training_.loader.batch(at_, task.vrank());
  if (batch.samples > 0) task.reads(batch.input);
  Targets targets = targets_of(batch);
  return under_way_.emplace(task.vrank(), RankWork{.batch = std::move(batch), .targets = std::move(targets)})
      .first->second;
}

void StageWork::compute(Session::Task& task) {
  RankWork& work = work_of(task);
  if (work.batch.samples == 0) return task.skip();
  const PrecisionScope products(training_.setup.precision);
  if (task.pass()->backward) return backward(task, work);
  forward(task, work);
}

void StageWork::forward(Session::Task& task, RankWork& work) {
  const auto [begin, end] = task.pass()->segments;
  Boundary from{.value = {}, .rng = rng_of(task.vrank())};
  if (begin == 0) {
    from.value = work.batch.input_on(training_.setup.device);
  } else {
    Session::PassValue input =
        task.receive([&, expected = value_shape(begin - 1, work.batch)](const Shape& shape, DType dtype) {
          return shape == expected && (dtype == DType::f32 || dtype == DType::bf16);
        });
    from.value = input.value.to(training_.setup.device);
    from.rng.op = input.random;
  }
  std::optional<Activity> pass(std::in_place, "forward", task.vrank());
  if (training_.setup.source != nullptr && !residence_)
    residence_.emplace(network(), *training_.setup.source, task.shards());
  const SegmentPasses::Options options{.recompute = training_.recompute(),
                                       .group = &task.shards(),
                                       .residence = residence_ ? &*residence_ : nullptr,
                                       .inputs = work.batch.further_inputs_on(training_.setup.device)};
  const SegmentRange segments{static_cast<size_t>(begin), static_cast<size_t>(end)};
  Run& run =
      work.runs
          .emplace(begin,
                   Run{segments, SegmentPasses(network(), segments, from, work.targets, training_.setup.task, options)})
          .first->second;
  work.statistics[begin] = batch_statistics_of(run.passes.take_statistics());
  if (segments.end < network().segments().size()) {
    const Boundary to = run.passes.to();
    pass.reset();  // sending may wait for another stage
    return task.send({to.value, to.rng.op});
  }
  work.loss.emplace(run.passes.loss());
  work.top1.emplace(run.passes.top1());
}

void StageWork::backward(Session::Task& task, RankWork& work) {
  const int begin = task.pass()->segments.begin;
  Run& run = work.runs.at(begin);
  Tensor dy;
  if (run.segments.end < network().segments().size()) {
    const Tensor value = run.passes.to().value;
    const Session::PassValue input =
        task.receive([&](const Shape& shape, DType dtype) { return shape == value.shape() && dtype == value.dtype(); });
    dy = input.value.to(training_.setup.device);
  }
  std::optional<Activity> pass(std::in_place, "backward", task.vrank());
  if (work.readers.empty()) {  // the first backward pass comes after all forward passes
    work.readers.resize(network().parameters.list.size());
    for (const auto& [first, other] : work.runs)
      for (const size_t p : read_by(other.segments)) ++work.readers[p];
    task.begin();
    task.forward(training_.setup.task->count(work.targets), batch_statistics(work));
  }
  const Tensor dx = run.passes.backward(std::move(dy), work.gradients, [&](size_t p) {
    if (work.readers[p] == 1) hand_over(task, work, p);
  });
  pass.reset();
  if (begin > 0) task.send({dx, 0});
  for (const size_t p : read_by(run.segments))
    if (work.readers[p] > 0 && --work.readers[p] == 0) hand_over(task, work, p);
  work.runs.erase(begin);
}

std::vector<size_t> StageWork::read_by(const SegmentRange& segments) const {
  std::vector<size_t> read;
  for (size_t i = segments.begin; i < segments.end; ++i) {
    const std::vector<size_t>& parameters = network().segments()[i].parameters;
    read.insert(read.end(), parameters.begin(), parameters.end());
  }
  std::sort(read.begin(), read.end());
  read.erase(std::unique(read.begin(), read.end()), read.end());
  return read;
}

void StageWork::hand_over(Session::Task& task, RankWork& work, size_t parameter) {
  work.readers[parameter] = 0;
  const Parameter& p = network().parameters.list[parameter];
  if (!p.computed_here(task.shards())) return;
  task.gradient(parameter, gradient_of_its_own(std::move(work.gradients[parameter]), p.var));
}

// Those of all batch norms of the network, undefined where other stages have them.
std::vector<Tensor> StageWork::batch_statistics(const RankWork& work) const {
  std::vector<Tensor> all;
  size_t begin = 0;
  for (const auto& [first, own] : work.statistics) {
    for (; begin < static_cast<size_t>(first); ++begin)
      all.resize(all.size() + 2 * training_.segments()[begin].statistics.size());
    all.insert(all.end(), own.begin(), own.end());
    begin = work.runs.at(first).segments.end;
  }
  for (; begin < training_.segments().size(); ++begin)
    all.resize(all.size() + 2 * training_.segments()[begin].statistics.size());
  return all;
}

RankFacts StageWork::finish(Session::Task& task) {
  RankWork work = std::move(under_way_.at(task.vrank()));
  under_way_.erase(task.vrank());
  if (work.batch.samples == 0) return {};
  task.end();
  RankFacts facts = Training::facts_of(work.batch);  // the digest for an audit covers those of the batch
  if (work.loss) {
    facts.loss_sum = work.loss->wait().item();
    facts.correct = correct_of(work.top1->wait());
  }
  facts.count = training_.setup.task->count(work.targets);
  return facts;
}

}  // namespace elinvar
