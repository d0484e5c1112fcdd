#pragma once
// Tensors that a process keeps for slices of the parameters only, such as the state of the optimiser.
//
//   SlicedTensors moments(parameters, {"m", "v"}, slices);
//   for (SlotSlice& s : moments.slots()) copy(view_of(whole.at(s.name), s.slice), s.values);
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "nn/offload.h"
#include "nn/parameters.h"
#include "tensor/slice.h"

namespace elinvar {

// Shapes and views of all parameters in order, as the functions of tensor/slice.h take them. Slice::tensor is the index
// of a parameter in Parameters::list.
std::vector<Shape> shapes_of(const Parameters& parameters);
std::vector<Tensor> views_of(const Parameters& parameters, std::span<const Slice> slices);

struct SlotSlice {
  std::string name;  // "<parameter>.<slot>", or "<parameter>" if the slot has no name
  Slice slice;       // of the slot
  Tensor values;     // one-dimensional, of the parameter's type, on its device or offloaded
};

class SlicedTensors {
 public:
  SlicedTensors() = default;
  // Tensors of zeros, one for each of the named slots of each slice. Slots have the shape of their parameter, or what
  // `shape` makes of it: a number for each row. Throws what check_slices() throws.
  using SlotShape = std::function<Shape(const Shape& parameter)>;
  SlicedTensors(const Parameters& parameters, std::vector<std::string> slots, std::vector<Slice> slices,
                Offload offload = {}, const SlotShape& shape = {});

  const std::vector<Slice>& slices() const { return slices_; }
  const Offload& offload() const { return offload_; }

  // Changes which slices are kept. The tensors of a slice that is in both lists remain, not copied; those of others are
  // freed, then those of new ones are allocated, zero. Throws what check_slices() throws, and then changes nothing.
  void keep(std::vector<Slice> slices);

  // Returns all slots of the first slice, then those of the next. Writing to them changes what is kept.
  std::vector<SlotSlice> slots() const;
  // All slots, in the order of their names, each with a tensor for each slice.
  std::vector<std::vector<Tensor>>& tensors() { return tensors_; }

 private:
  struct Whole {
    std::string name;
    DType dtype;
    Device device;
    int64_t elements, slot_elements;
  };
  Slice of_slot(const Slice& slice) const;

  std::vector<Shape> shapes_;
  std::vector<Whole> wholes_;  // the parameters
  std::vector<std::string> names_;
  Offload offload_;
  std::vector<Slice> slices_;
  std::vector<std::vector<Tensor>> tensors_;
};

}  // namespace elinvar
