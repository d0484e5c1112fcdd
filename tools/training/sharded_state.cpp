#include "tools/training/sharded_state.h"

#include <algorithm>

#include "elastic/ledger/digest_file.h"
#include "nn/sliced_tensors.h"
#include "nn/update_rule.h"
#include "tensor/base/check.h"
#include "tensor/ops/copy.h"

namespace elinvar {

ShardedState::ShardedState(TrainingSetup& setup) : setup_(setup) {
  if (const auto rule = make_update_rule(setup.config.optimizer)) slots_ = rule->slots();
}

void ShardedState::use(ParameterSource& source) {
  source_ = &source;
  setup_.source = setup_.values ? source_ : nullptr;
}

void ShardedState::hold(int zero) {
  setup_.hold(zero);
  setup_.source = setup_.values ? source_ : nullptr;
  if (setup_.sliced) setup_.sliced->keep({});
  if (setup_.values) setup_.values->keep({});
}

void ShardedState::restored(int zero, std::optional<CheckpointReader> checkpoint) {
  hold(zero);
  checkpoint_ = std::move(checkpoint);
  begins_ = true;
}

// The parameters of a slice come before its slots.

std::vector<SliceRange> ShardedState::ranges(const Slice& slice, int zero) const {
  const Parameter& parameter = setup_.network->parameters.list[static_cast<size_t>(slice.tensor)];
  std::vector<SliceRange> ranges;
  if (zero >= 3)
    ranges.push_back(
        {.tensor = "model." + parameter.name, .whole = parameter.var.shape(), .begin = slice.begin, .end = slice.end});
  for (const std::string& slot : slots_)
    ranges.push_back({.tensor = "optimizer." + parameter.name + "." + slot,
                      .whole = parameter.var.shape(),
                      .begin = slice.begin,
                      .end = slice.end});
  return ranges;
}

std::vector<StateSlice> ShardedState::state(const Slice& slice, int zero) const {
  std::vector<StateSlice> state;
  const std::vector<Slice>& kept = setup_.sliced->slices();
  const auto found = std::find(kept.begin(), kept.end(), slice);
  std::vector<Tensor> values;
  const auto at = static_cast<size_t>(found - kept.begin());
  if (found != kept.end() && setup_.values) values.push_back(setup_.values->tensors()[0][at]);
  if (found != kept.end())
    for (const std::vector<Tensor>& slot : setup_.sliced->tensors()) values.push_back(slot[at]);
  const std::vector<SliceRange> ranges = this->ranges(slice, zero);
  for (size_t k = 0; k < ranges.size(); ++k) {
    const SliceRange& range = ranges[k];
    Tensor value;
    if (found != kept.end()) value = values[k];
    else if (checkpoint_) value = checkpoint_->read_slice(range.tensor, range.begin, range.end).values;
    else invariant(begins_, "a worker is asked for state that it has");
    if (!value.defined()) value = setup_.values && k == 0 ? initial(slice) : Tensor::zeros({slice.numel()});
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
  setup_.source = setup_.values ? source_ : nullptr;
  if (begins_ && had_slices)
    for (const Slice& slice : added) {
      std::vector<StateSlice> places = state(slice, zero);
      for (StateSlice& place : places)
        if (checkpoint_)
          copy(checkpoint_->read_slice(place.tensor, place.begin, place.end).values.to(place.values.device()),
               place.values);
      if (setup_.values && !checkpoint_) copy(initial(slice).to(places[0].values.device()), places[0].values);
    }
  checkpoint_.reset();
  begins_ = false;
}

bool ShardedState::has(const Slice& slice) const {
  if (!setup_.values) return true;
  const std::vector<Slice>& kept = setup_.sliced->slices();
  return begins_ || std::find(kept.begin(), kept.end(), slice) != kept.end();
}

Tensor ShardedState::parameter(const Slice& slice) const {
  if (setup_.values) return state(slice, 3).at(0).values;
  return view_of(setup_.network->parameters.list[static_cast<size_t>(slice.tensor)].var.value(), slice);
}

Tensor ShardedState::initial(const Slice& slice) const {
  const std::lock_guard lock(initial_.mutex);
  const Parameter& parameter = setup_.network->parameters.list[static_cast<size_t>(slice.tensor)];
  if (initial_.parameter != slice.tensor) {
    initial_.values = Tensor::empty(parameter.var.shape());
    parameter.initialise(initial_.values);
    initial_.parameter = slice.tensor;
  }
  return view_of(initial_.values, slice).clone();
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
          .layout = [this](int zero) { return layout(zero); },
          .fetches = [this] { return setup_.values != nullptr; }};
}

}  // namespace elinvar
