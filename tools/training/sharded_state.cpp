#include "tools/training/sharded_state.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "elastic/ledger/digest_file.h"
#include "nn/sliced_tensors.h"
#include "nn/touched_rows.h"
#include "nn/update_rule.h"
#include "tensor/base/check.h"
#include "tensor/ops/copy.h"
#include "tensor/ops/embedding.h"
#include "tools/training/parameter_shards.h"

namespace elinvar {
namespace {

// Looks up rows of the sparse tables of a network in a source, or with none in the tables themselves.
void fetch_tables(const Parameters& parameters, ParameterShards* source) {
  for (size_t i = 0; i < parameters.list.size(); ++i) {
    if (!parameters.list[i].sparse()) continue;
    const auto fetch = [source, i](std::span<const int64_t> rows) { return source->rows(i, rows); };
    parameters.list[i].touched->fetch_by(source != nullptr ? TouchedRows::Fetch(fetch) : nullptr);
  }
}

// The numbers of rows, counted from `first` on.
Tensor index_of(std::span<const int64_t> rows, int64_t first) {
  Tensor index = Tensor::empty({std::ssize(rows)}, DType::i64);
  std::ranges::transform(rows, index.data<int64_t>(), [first](int64_t row) { return row - first; });
  return index;
}

}  // namespace

ShardedState::ShardedState(TrainingSetup& setup) : setup_(setup) {
  rule_ = make_update_rule(setup.config.optimizer);
  table_rule_ = make_table_rule(setup.config.optimizer);
}

ShardedState::~ShardedState() = default;

const Parameter& ShardedState::parameter_of(const Slice& slice) const {
  return setup_.network->parameters.list[static_cast<size_t>(slice.tensor)];
}

bool ShardedState::of_table(const Slice& slice) const { return parameter_of(slice).sparse(); }

int64_t ShardedState::channels_of(const Slice& slice) const { return parameter_of(slice).var.shape()[1]; }

void ShardedState::use(ParameterShards& parameters, ParameterShards& averages) {
  source_ = &parameters;
  average_source_ = &averages;
  use_sources();
}

void ShardedState::use_sources() {
  ParameterShards* const source = setup_.values ? source_ : nullptr;
  setup_.source = source;
  fetch_tables(setup_.network->parameters, source);
  if (!setup_.average) return;
  ParameterShards* const of_averages = setup_.averages ? average_source_ : nullptr;
  setup_.average_source = of_averages;
  fetch_tables(setup_.average->parameters, of_averages);
}

void ShardedState::hold(int zero) {
  setup_.hold(zero);
  use_sources();
  for (const Parameter& p : setup_.network->parameters.list)
    if (p.sparse()) p.touched->forget_updated();
  if (setup_.sliced) setup_.sliced->keep({});
  if (setup_.values) setup_.values->keep({});
  if (setup_.averages) setup_.averages->keep({});
}

void ShardedState::restored(int zero, std::optional<CheckpointReader> checkpoint) {
  hold(zero);
  checkpoint_ = std::move(checkpoint);
  begins_ = true;
}

// The parameters of a slice come before its slots, and their averages after these.
std::vector<SliceRange> ShardedState::ranges(const Slice& slice, int zero) const {
  const Parameter& parameter = parameter_of(slice);
  std::vector<SliceRange> ranges;
  if (zero >= 3)
    ranges.push_back(
        {.tensor = "model." + parameter.name, .whole = parameter.var.shape(), .begin = slice.begin, .end = slice.end});
  if (const UpdateRule* const rule = parameter.sparse() ? table_rule_.get() : rule_.get()) {
    const Shape whole = rule->slot_shape(parameter.var.shape());
    const int64_t each = parameter.var.shape().numel() / std::max<int64_t>(whole.numel(), 1);
    for (const std::string& slot : rule->slots())
      ranges.push_back({.tensor = "optimizer." + parameter.name + "." + slot,
                        .whole = whole,
                        .begin = slice.begin / each,
                        .end = slice.end / each});
  }
  if (setup_.average)
    ranges.push_back({.tensor = "average." + parameter.name,
                      .whole = parameter.var.shape(),
                      .begin = slice.begin,
                      .end = slice.end});
  return ranges;
}

std::optional<Tensor> ShardedState::kept_in(SlicedTensors& tensors, const Slice& slice) {
  const std::vector<Slice>& kept = tensors.slices();
  const auto found = std::ranges::find(kept, slice);
  if (found == kept.end()) return std::nullopt;
  return tensors.tensors()[0].at(static_cast<size_t>(found - kept.begin()));
}

// Returns a copy of the parameters in a slice with which a new network begins, and so does their average. No update has
// been made yet.
Tensor ShardedState::begun(const Slice& slice) const {
  return setup_.values ? initial(slice) : view_of(parameter_of(slice).var.value(), slice).clone();
}

std::vector<StateSlice> ShardedState::state(const Slice& slice, int zero) const {
  std::vector<StateSlice> state;
  std::vector<Tensor> values;
  std::optional<std::vector<Tensor>> slots = setup_.sliced->slots_of(slice);
  if (slots) {
    if (setup_.values) values.push_back(*kept_in(*setup_.values, slice));
    values.insert(values.end(), slots->begin(), slots->end());
    if (setup_.averages) values.push_back(*kept_in(*setup_.averages, slice));
  }
  const std::vector<SliceRange> ranges = this->ranges(slice, zero);
  for (size_t k = 0; k < ranges.size(); ++k) {
    const SliceRange& range = ranges[k];
    Tensor value;
    if (slots) value = values[k];
    else if (checkpoint_) value = checkpoint_->read_slice(range.tensor, range.begin, range.end).values;
    else invariant(begins_, "a worker is asked for state that it has");
    const bool of_parameters = (setup_.values && k == 0) || (setup_.average && k + 1 == ranges.size());
    if (!value.defined()) value = of_parameters ? begun(slice) : Tensor::zeros({range.end - range.begin});
    state.push_back(
        {.tensor = range.tensor, .whole = range.whole, .begin = range.begin, .end = range.end, .values = value});
  }
  return state;
}

void ShardedState::keep(int zero, std::vector<Slice> slices) {
  std::vector<Slice> added;
  const bool had_slices = setup_.sliced != nullptr;
  const std::vector<Slice> before = had_slices ? setup_.sliced->slices() : std::vector<Slice>();
  for (const Slice& slice : slices)
    if (std::find(before.begin(), before.end(), slice) == before.end()) added.push_back(slice);
  setup_.keep(zero, std::move(slices));
  use_sources();
  if (begins_ && had_slices)
    for (const Slice& slice : added) {
      std::vector<StateSlice> places = state(slice, zero);
      for (StateSlice& place : places)
        if (checkpoint_)
          copy(checkpoint_->read_slice(place.tensor, place.begin, place.end).values.to(place.values.device()),
               place.values);
      const auto begin = [&](StateSlice& place) {
        for (const Slice& piece : pieces_of(slice)) {
          Tensor values = place.values.slice(0, piece.begin - slice.begin, piece.end - slice.begin);
          copy(begun(piece).to(values.device()), values);
        }
      };
      if (setup_.values && !checkpoint_) begin(places.front());
      if (setup_.averages && !checkpoint_) begin(places.back());
    }
  checkpoint_.reset();
  begins_ = false;
}

// Cuts the slice into parts whose initial values take little memory. A slice of a sparse table may be large.
std::vector<Slice> ShardedState::pieces_of(const Slice& slice) const {
  if (!of_table(slice)) return {slice};
  const int64_t channels = channels_of(slice), piece = std::max<int64_t>(1, kChunkElements / channels) * channels;
  std::vector<Slice> pieces;
  for (int64_t at = slice.begin; at < slice.end; at += piece)
    pieces.push_back({slice.tensor, at, std::min(at + piece, slice.end)});
  return pieces;
}

bool ShardedState::has(const Slice& slice, bool average) const {
  if (!(average ? setup_.averages : setup_.values)) return true;
  const std::vector<Slice>& kept = setup_.sliced->slices();
  return begins_ || std::find(kept.begin(), kept.end(), slice) != kept.end();
}

Tensor ShardedState::parameter(const Slice& slice) const {
  if (setup_.values) return state(slice, 3).at(0).values;
  return view_of(parameter_of(slice).var.value(), slice);
}

Tensor ShardedState::average(const Slice& slice) const {
  if (!setup_.averages)
    return view_of(setup_.average->parameters.list[static_cast<size_t>(slice.tensor)].var.value(), slice);
  if (const std::optional<Tensor> kept = kept_in(*setup_.averages, slice)) return *kept;
  if (checkpoint_) return checkpoint_->read_slice("average." + parameter_of(slice).name, slice.begin, slice.end).values;
  invariant(begins_, "a worker is asked for averages that it has");
  return begun(slice);
}

Tensor ShardedState::initial(const Slice& slice) const {
  if (of_table(slice) && (parameter_of(slice).touched->grows() || parameter_of(slice).touched->initial())) {
    const int64_t channels = channels_of(slice);
    std::vector<int64_t> rows(static_cast<size_t>(slice.numel() / channels));
    std::iota(rows.begin(), rows.end(), slice.begin / channels);
    return initial_rows(slice, rows).reshape({slice.numel()});
  }
  const std::lock_guard lock(initial_.mutex);
  const Parameter& parameter = parameter_of(slice);
  if (initial_.parameter != slice.tensor) {
    initial_.values = Tensor::empty(parameter.var.shape());
    parameter.initialise(initial_.values);
    initial_.parameter = slice.tensor;
  }
  return view_of(initial_.values, slice).clone();
}

// The initial values of a table that grows are zeros; those of its ids are computed where they get their rows.
Tensor ShardedState::initial_rows(const Slice& slice, std::span<const int64_t> rows) const {
  const Shape shape{static_cast<int64_t>(rows.size()), channels_of(slice)};
  const TouchedRows& touched = *parameter_of(slice).touched;
  if (touched.grows()) return Tensor::zeros(shape);
  if (!touched.initial()) {
    const int64_t all = parameter_of(slice).var.shape()[0];
    return embedding(initial({slice.tensor, 0, all * shape[1]}).reshape({all, shape[1]}), index_of(rows, 0));
  }
  Tensor values = Tensor::empty(shape);
  touched.initial()(rows, values);
  return values;
}

Tensor ShardedState::rows(const Slice& slice, std::span<const int64_t> rows, bool average) const {
  const int64_t channels = channels_of(slice), first = slice.begin / channels;
  const auto of = [&](const Tensor& values) {
    return embedding(values.reshape({slice.numel() / channels, channels}), index_of(rows, first));
  };
  const SlicedTensors* const sliced = (average ? setup_.averages : setup_.values).get();
  const bool kept = sliced == nullptr || std::ranges::find(sliced->slices(), slice) != sliced->slices().end();
  if (kept) return of(average ? this->average(slice) : parameter(slice));
  if (!checkpoint_) {
    invariant(begins_, "a worker is asked for rows that it has");
    return setup_.values ? initial_rows(slice, rows) : of(view_of(parameter_of(slice).var.value(), slice));
  }
  Tensor values = Tensor::empty({static_cast<int64_t>(rows.size()), channels});
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    Tensor place = values.slice(0, at, at + 1);
    const std::string name = (average ? "average." : "model.") + parameter_of(slice).name;
    copy(checkpoint_->read_elements(name, rows[i] * channels, (rows[i] + 1) * channels).reshape({1, channels}), place);
  }
  return values;
}

// The rows of a slice that the last update changed, as numbers within it.
Tensor ShardedState::updated_rows(const Slice& slice) const {
  const int64_t channels = channels_of(slice), first = slice.begin / channels, end = slice.end / channels;
  const auto all = parameter_of(slice).touched->updated().span<int64_t>();
  return index_of({std::lower_bound(all.begin(), all.end(), first), std::lower_bound(all.begin(), all.end(), end)},
                  first);
}

bool ShardedState::all_updated(const Slice& slice) const {
  return !of_table(slice) || !parameter_of(slice).touched->updated().defined();
}

Tensor ShardedState::updated(const Slice& slice) const {
  const Tensor values = parameter(slice);
  if (all_updated(slice)) return values;
  const int64_t channels = channels_of(slice);
  const Tensor rows = updated_rows(slice);
  return embedding(values.reshape({slice.numel() / channels, channels}), rows).reshape({rows.numel() * channels});
}

void ShardedState::put_updated(const Slice& slice, const Tensor& values) {
  Tensor place = parameter(slice);
  if (values.numel() == slice.numel()) return copy(values.to(place.device()), place);
  const int64_t channels = channels_of(slice);
  if (all_updated(slice))
    fail("{} elements of {} came, but all {} of the slice are expected", values.numel(), parameter_of(slice).name,
         slice.numel());
  const Tensor rows = updated_rows(slice);
  if (values.numel() != rows.numel() * channels)
    fail("{} elements of {} came, of which the step touched {} rows of {} elements", values.numel(),
         parameter_of(slice).name, rows.numel(), channels);
  Tensor table = place.reshape({slice.numel() / channels, channels});
  put_rows(values.to(place.device()).reshape({rows.numel(), channels}), rows, table);
}

void ShardedState::learns(int zero) {
  hold(zero);
  checkpoint_.reset();
  begins_ = false;
}

std::vector<TensorLayout> ShardedState::layout(int zero) const {
  std::vector<TensorLayout> layout;
  const std::vector<Parameter>& parameters = setup_.network->parameters.list;
  for (size_t i = 0; i < parameters.size(); ++i)
    for (const SliceRange& range :
         ranges({.tensor = static_cast<int>(i), .begin = 0, .end = parameters[i].var.shape().numel()}, zero))
      layout.push_back({range.tensor, name_of(DType::f32), {range.whole.begin(), range.whole.end()}});
  return layout;
}

ShardAccess ShardedState::access() {
  return {.keep = [this](int zero, std::vector<Slice> slices) { keep(zero, std::move(slices)); },
          .learns = [this](int zero) { learns(zero); },
          .ranges = [this](const Slice& slice, int zero) { return ranges(slice, zero); },
          .state = [this](const Slice& slice, int zero) { return state(slice, zero); },
          .parameter = [this](const Slice& slice) { return parameter(slice); },
          .average = [this](const Slice& slice) { return average(slice); },
          .updated = [this](const Slice& slice) { return updated(slice); },
          .put_updated = [this](const Slice& slice, const Tensor& values) { put_updated(slice, values); },
          .rows = [this](const Slice& slice, std::span<const int64_t> of,
                         bool average) { return rows(slice, of, average); },
          .layout = [this](int zero) { return layout(zero); },
          .fetches = [this] { return setup_.values != nullptr; },
          .averages = [this] { return setup_.averages != nullptr; }};
}

}  // namespace elinvar
