#include "nn/sliced_tensors.h"

#include <algorithm>

namespace elinvar {

std::vector<Shape> shapes_of(const Parameters& parameters) {
  std::vector<Shape> shapes;
  for (const Parameter& p : parameters.list) shapes.push_back(p.var.shape());
  return shapes;
}

std::vector<Tensor> views_of(const Parameters& parameters, std::span<const Slice> slices) {
  std::vector<Tensor> views;
  for (const Slice& s : slices)
    views.push_back(view_of(parameters.list.at(static_cast<size_t>(s.tensor)).var.value(), s));
  return views;
}

SlicedTensors::SlicedTensors(const Parameters& parameters, std::vector<std::string> slots, std::vector<Slice> slices,
                             Offload offload, const SlotShape& shape)
    : shapes_(shapes_of(parameters)), names_(std::move(slots)), offload_(std::move(offload)), tensors_(names_.size()) {
  for (const Parameter& p : parameters.list) {
    const int64_t elements = p.var.shape().numel();
    wholes_.push_back({.name = p.name,
                       .dtype = p.var.dtype(),
                       .device = p.var.value().device(),
                       .elements = elements,
                       .slot_elements = shape ? shape(p.var.shape()).numel() : elements});
  }
  keep(std::move(slices));
}

Slice SlicedTensors::of_slot(const Slice& slice) const {
  const Whole& whole = wholes_[static_cast<size_t>(slice.tensor)];
  if (whole.elements == whole.slot_elements) return slice;
  const int64_t each = whole.elements / whole.slot_elements;
  return {slice.tensor, slice.begin / each, slice.end / each};
}

void SlicedTensors::keep(std::vector<Slice> slices) {
  check_slices(slices, shapes_);
  std::vector<std::vector<Tensor>> kept(names_.size(), std::vector<Tensor>(slices.size()));
  for (size_t i = 0; i < slices.size(); ++i) {
    const auto found = std::find(slices_.begin(), slices_.end(), slices[i]);
    if (found == slices_.end()) continue;
    const auto before = static_cast<size_t>(found - slices_.begin());
    for (size_t k = 0; k < kept.size(); ++k) kept[k][i] = std::move(tensors_[k][before]);
  }
  tensors_ = std::move(kept);
  slices_ = std::move(slices);
  for (std::vector<Tensor>& slot : tensors_)
    for (size_t i = 0; i < slices_.size(); ++i) {
      const Whole& whole = wholes_[static_cast<size_t>(slices_[i].tensor)];
      if (!slot[i].defined()) slot[i] = offload_.zeros({of_slot(slices_[i]).numel()}, whole.dtype, whole.device);
    }
}

std::vector<SlotSlice> SlicedTensors::slots() const {
  std::vector<SlotSlice> all;
  for (size_t i = 0; i < slices_.size(); ++i)
    for (size_t k = 0; k < names_.size(); ++k) {
      const std::string& name = wholes_[static_cast<size_t>(slices_[i].tensor)].name;
      all.push_back({names_[k].empty() ? name : name + "." + names_[k], of_slot(slices_[i]), tensors_[k][i]});
    }
  return all;
}

}  // namespace elinvar
